package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

func TestMain(m *testing.M) {
	if os.Getenv("AGENT_TEST_APP") != "" {
		appMain()
		return
	}
	http.DefaultTransport.(*http.Transport).DisableKeepAlives = true
	goleak.VerifyTestMain(m)
}

// running is an agent under test with an app behind it.
type running struct {
	t        *testing.T
	log      *logstest.Buffer
	url      string // of the inbound
	status   string // of the status server
	stop     *drain.Requests
	requests chan string   // paths of the app's requests, answered when free
	free     chan struct{} // lets the app answer
	done     chan struct{}
	code     int
	err      error
	message  string // file of the termination message
}

// start runs an agent whose timers are short unless env says else.
func start(t *testing.T, env []string, change ...func(*Options)) *running {
	t.Helper()
	r := &running{
		t: t, log: &logstest.Buffer{}, stop: new(drain.Requests),
		requests: make(chan string, 10), free: make(chan struct{}), done: make(chan struct{}),
		message: filepath.Join(t.TempDir(), "termination-log"),
	}
	app := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, app, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/ready" {
			return
		}
		r.requests <- req.URL.Path
		select {
		case <-r.free:
		case <-req.Context().Done():
		}
		fmt.Fprint(w, "done")
	}))

	inbound, status := freeAddress(t), freeAddress(t)
	host, port, _ := net.SplitHostPort(status)
	env = append([]string{"MINIMUM_DRAIN_DURATION=0s", "LASTCALL_QUIET_TIME=10ms", "LASTCALL_IDLE_GRACE=10ms"}, env...)
	settings, err := meshconfig.Resolve(meshconfig.Input{Env: env})
	must.Do(t, err)
	fmt.Sscan(port, &settings.StatusPort.Value)
	o := Options{
		Settings: settings,
		Pipe: pipe.Config{Inbound: []pipe.Inbound{{Listen: inbound, App: app.Addr().String(),
			Protocol: pipe.HTTP}}},
		Status:         StatusOptions{Address: host},
		TerminationLog: r.message,
		Stop:           Stop{Requests: r.stop},
		Log:            slog.New(slog.NewJSONHandler(r.log, nil)),
	}
	for _, f := range change {
		f(&o)
	}
	r.url, r.status = "http://"+inbound, "http://"+status
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(r.done)
		r.code, r.err = Run(ctx, o)
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	r.until("ready", func() bool {
		code, _ := fetch("GET", r.status+"/healthz/ready")
		return code == http.StatusOK || r.ended()
	})
	return r
}

func freeAddress(t *testing.T) string { return nettest.FreeAddress(t, "127.0.0.1") }

func (r *running) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *running) until(what string, f func() bool) {
	r.t.Helper()
	polltest.Eventually(r.t, what, f, r.log)
}

func (r *running) wantEnd(code int) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		r.t.Fatalf("the agent does not end:\n%s", r.log)
	}
	if r.err != nil || r.code != code {
		r.t.Fatalf("code %d, %v; want %d\n%s", r.code, r.err, code, r.log)
	}
}

// get asks through the pipe and gives the answer later.
func (r *running) get(path string) <-chan string {
	out := make(chan string, 1)
	go func() {
		resp, err := http.Get(r.url + path)
		if err != nil {
			out <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		out <- fmt.Sprint(resp.StatusCode, " ", string(b), err)
	}()
	return out
}

// inFlight is get, with a request that the app has and does not answer yet.
func (r *running) inFlight(path string) <-chan string {
	answer := r.get(path)
	<-r.requests
	return answer
}

// wantAnswered has the app answer the request in flight.
func (r *running) wantAnswered(answer <-chan string) {
	r.t.Helper()
	close(r.free)
	if got := <-answer; got != "200 done<nil>" {
		r.t.Errorf("the request in flight got %s", got)
	}
}

// logged waits until a text is in the log.
func (r *running) logged(text string) {
	r.t.Helper()
	r.until("the log has "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

// waits sends SIGTERM, and awaits the phase in which requests in flight end.
func (r *running) waits() {
	r.t.Helper()
	r.stop.Send(drain.Terminate)
	r.logged(`"phase":"waiting"`)
}

// terminates sends SIGTERM and wants an exit that was intended.
func (r *running) terminates() {
	r.t.Helper()
	r.stop.Send(drain.Terminate)
	r.wantEnd(CodeIntended)
}

// post asks the status server.
func (r *running) post(path string) (int, string) { return fetch(http.MethodPost, r.status+path) }

// fetch sends a request and returns the response's status and body; 0 and the error if there is none.
func fetch(method, url string) (int, string) {
	req, err := http.NewRequest(method, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// report reads the termination message.
func (r *running) report() (report struct {
	Verdict, Mode, Trigger string
	Open                   []drain.Conversation
}) {
	r.t.Helper()
	b, err := os.ReadFile(r.message)
	must.Do(r.t, err)
	if err := json.Unmarshal(b, &report); err != nil {
		r.t.Fatalf("termination message %s: %v", b, err)
	}
	return report
}

func TestTerminate(t *testing.T) {
	r := start(t, nil)
	answer := r.inFlight("/slow")
	r.waits()
	_, metrics := fetch("GET", r.status+"/metrics") // still there
	for _, want := range []string{
		`lastcall_drain_phase{phase="waiting"} 1`,
		`lastcall_connections{state="busy"} 1`,
		"lastcall_deadline_remaining_seconds 2", // and some, of 30
		`envoy_http_downstream_rq_active{envoy_http_conn_manager_prefix="inbound"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	r.wantAnswered(answer)
	r.wantEnd(CodeIntended)
	if got := r.report(); got.Verdict != "clean" || got.Trigger != "SIGTERM" || got.Mode != "exit-on-zero" {
		t.Errorf("report %+v", got)
	}
}

// hookWaits runs a hook, of which it is the nth drain, with a request in flight, and wants it to wait for the request.
func (r *running) hookWaits(path string, nth int) {
	r.t.Helper()
	answer := r.inFlight("/slow")
	waited := make(chan string, 1)
	go func() {
		code, body := r.post(path)
		waited <- fmt.Sprint(code, " ", body)
	}()
	r.until("the hook waits", func() bool { return strings.Count(r.log.String(), `"phase":"waiting"`) == nth })
	select {
	case got := <-waited:
		r.t.Fatalf("%s returned while a request was in flight: %s", path, got)
	default:
	}
	r.wantAnswered(answer)
	if got := <-waited; got != "200 drained\n" {
		r.t.Errorf("%s: %s", path, got)
	}
}

func TestWaitThenTerminate(t *testing.T) {
	for _, path := range []string{"/wait", "/drain"} {
		r := start(t, nil)
		r.hookWaits(path, 1)
		r.terminates()
		if got := r.report(); !strings.HasSuffix(got.Trigger, "hook") || got.Verdict != "clean" {
			t.Errorf("report %+v", got)
		}
	}
}

// A hook that comes after the SIGTERM, as in a classic pod, is answered before
// the end.
func TestTerminateThenWait(t *testing.T) {
	r := start(t, nil)
	answer := r.inFlight("/slow")
	r.waits()
	waited := make(chan int, 1)
	go func() { code, _ := r.post("/wait"); waited <- code }()
	close(r.free)
	<-answer
	r.wantEnd(CodeIntended)
	if code := <-waited; code != 200 && code != 0 { // 0: refused, when it came too late
		t.Errorf("the hook got %d", code)
	}
}

func TestQuit(t *testing.T) {
	admin, address := withAdmin(t, "")
	for want, quit := range map[string]func(*running) (int, string){
		"200 OK":   func(r *running) (int, string) { return r.post("/quitquitquit") },
		"200 OK\n": func(*running) (int, string) { return postTo(address, "quitquitquit") },
	} {
		r := start(t, nil, admin)
		answer := r.inFlight("/never")
		if code, body := quit(r); fmt.Sprint(code, " ", body) != want {
			t.Errorf("%d %q", code, body)
		}
		r.wantEnd(CodeIntended)
		<-answer
		if got := r.report(); got.Verdict != "quit" {
			t.Errorf("report %+v", got)
		}
		if n := strings.Count(r.log.String(), "handling /quitquitquit"); n != 1 {
			t.Errorf("the request is in the log %d times:\n%s", n, r.log)
		}
	}
}

func TestDrainCancelled(t *testing.T) {
	t.Parallel() // it waits for a deadline
	r := start(t, []string{"TERMINATION_GRACE_PERIOD_SECONDS=2"})
	if code, body := r.post("/wait"); code != 200 {
		t.Fatal(code, body)
	}
	if code, body := fetch("GET", r.status+"/healthz/ready"); code != 200 {
		t.Errorf("readiness in the drain: %d %s", code, body)
	}
	r.logged("drain cancelled")
	r.until("it serves again", func() bool {
		_, metrics := fetch("GET", r.status+"/metrics")
		return strings.Contains(metrics, `lastcall_drain_phase{phase="serving"} 1`)
	})
	r.hookWaits("/wait", 2)
	if got := <-r.get("/again"); got != "200 done<nil>" {
		t.Errorf("after the second hook: %s", got)
	}
	r.terminates()
}

func TestIstioDrainIsAnsweredAtOnce(t *testing.T) {
	r := start(t, []string{"LASTCALL_COMPAT=istio"})
	answer := r.inFlight("/never")
	if code, body := r.post("/drain"); code != 200 || body != "OK" {
		t.Errorf("%d %q", code, body)
	}
	r.terminates()
	<-answer
	if !strings.Contains(r.log.String(), "Agent already drained, exiting immediately") {
		t.Error("Istio's line is missing")
	}
}

func TestStatusServer(t *testing.T) {
	r := start(t, nil)
	for _, tt := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/healthz/ready", 200, "ready\n"},
		{"GET", "/quitquitquit", 405, "Method Not Allowed\n"},
		{"GET", "/drain", 405, "Method Not Allowed\n"},
		{"PUT", "/wait", 405, "Method Not Allowed\n"},
		{"GET", "/nowhere", 404, "404 page not found\n"},
		{"GET", "/wait/", 404, "404 page not found\n"}, // without a configured token every token is refused
		{"GET", "/wait/x", 404, "404 page not found\n"},
		{"GET", "/metrics", 200, ""},
		{"GET", "/stats/prometheus", 200, ""},
	} {
		code, body := fetch(tt.method, r.status+tt.path)
		if code != tt.code || tt.body != "" && body != tt.body {
			t.Errorf("%s %s: %d %q; want %d %q", tt.method, tt.path, code, body, tt.code, tt.body)
		}
	}
}

func TestOnlyThisPod(t *testing.T) {
	reached := false
	h := own(func(http.ResponseWriter, *http.Request) { reached = true })
	for peer, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "127.0.0.6:1": true,
		"10.0.0.1:1": false, "[fe80::1]:1": false, "": false,
	} {
		reached = false
		w := httptest.NewRecorder()
		h(w, &http.Request{Method: "POST", RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {"127.0.0.1"}}})
		if reached != want || !want && w.Code != 403 {
			t.Errorf("from %q: reached %v, %d", peer, reached, w.Code)
		}
	}
}

func TestApp(t *testing.T) {
	run := func(script string) func(*Options) {
		return func(o *Options) { o.App.Command = exec.Command("sh", "-c", script) }
	}
	t.Run("is ended after the drain", func(t *testing.T) {
		trace := filepath.Join(t.TempDir(), "trace")
		r := start(t, nil, run(`trap 'echo term > `+trace+`; exit 9' TERM; while :; do sleep 0.01; done`))
		answer := r.inFlight("/slow")
		r.waits()
		if _, err := os.Stat(trace); err == nil {
			t.Error("the app got its stop signal while a request was in flight")
		}
		close(r.free)
		<-answer
		r.wantEnd(9)
	})
	t.Run("ends its own connections", func(t *testing.T) {
		trace := filepath.Join(t.TempDir(), "trace")
		r := start(t, []string{"LASTCALL_APP=finishes"},
			run(`trap 'echo term >> `+trace+`' TERM; while [ ! -e `+trace+`.end ]; do sleep 0.01; done; exit 9`),
			func(o *Options) {
				o.Pipe.Inbound[0].Protocol = pipe.TCP
			})
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		must.Do(t, err)
		defer conn.Close()
		fmt.Fprint(conn, "GET /slow HTTP/1.1\r\nHost: app\r\n\r\n")
		<-r.requests
		r.stop.Send(drain.Terminate)
		r.until("the app has its stop signal", func() bool { _, err := os.Stat(trace); return err == nil })
		close(r.free) // the connection is forwarded to its end
		if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || answer != "HTTP/1.1 200 OK\r\n" {
			t.Errorf("%q, %v", answer, err)
		}
		_ = conn.Close()
		_ = os.WriteFile(trace+".end", nil, 0o600)
		r.wantEnd(9)
		if text, _ := os.ReadFile(trace); string(text) != "term\n" {
			t.Errorf("the app got %q, want its stop signal once", text)
		}
	})
	t.Run("ends by itself", func(t *testing.T) {
		r := start(t, nil, run("exit 4"))
		r.wantEnd(4)
	})
	t.Run("does not end", func(t *testing.T) {
		r := start(t, []string{"TERMINATION_GRACE_PERIOD_SECONDS=1"}, run(`trap '' TERM; while :; do sleep 0.01; done`))
		r.stop.Send(drain.Terminate)
		r.wantEnd(137)
	})
	t.Run("is not ready before it accepts connections on each of its ports", func(t *testing.T) {
		late, early := freeAddress(t), make(chan string, 1)
		unready := make(chan string, 1)
		var opened net.Listener
		start(t, nil, run(`trap 'exit 0' TERM; while :; do sleep 0.01; done`), func(o *Options) {
			inbound := freeAddress(t)
			o.Pipe.Inbound = append(o.Pipe.Inbound, pipe.Inbound{Listen: inbound, App: late, Protocol: pipe.HTTP})
			status := fmt.Sprintf("http://%s:%d", o.Status.Address, o.Settings.StatusPort.Value)
			go func() {
				for {
					code, body := fetch("GET", status+"/healthz/ready")
					if code == 0 || strings.Contains(body, "started") {
						continue
					}
					go func() { _, body := fetch("GET", "http://"+inbound); early <- body }()
					for busy := false; !busy; { // its client waits for the app
						_, metrics := fetch("GET", status+"/metrics")
						busy = strings.Contains(metrics, "\nlastcall_connections{state=\"busy\"} 1\n")
					}
					opened, _ = net.Listen("tcp", late)
					nettest.Serve(t, opened, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
						fmt.Fprint(w, "late")
					}))
					unready <- fmt.Sprint(code, " ", body)
					return
				}
			}()
		})
		got := <-unready // and start has returned, since the app is ready now
		if body := <-early; body != "late" {
			t.Errorf("a client that came before: %q", body)
		}
		if !strings.HasPrefix(got, "503 the app does not yet accept connections on ") {
			t.Errorf("before: %s", got)
		}
	})
	t.Run("cannot be started", func(t *testing.T) {
		r := start(t, nil, func(o *Options) { o.App.Command = exec.Command("/nowhere/app") })
		<-r.done
		if r.err == nil || !strings.Contains(r.err.Error(), "start /nowhere/app") {
			t.Error(r.err)
		}
	})
}

func TestCannotListen(t *testing.T) {
	taken := nettest.Listen(t, "127.0.0.1:0")
	defer taken.Close()
	r := start(t, nil, func(o *Options) { o.Pipe.Inbound[0].Listen = taken.Addr().String() })
	<-r.done
	if r.err == nil || !strings.Contains(r.err.Error(), "listen for inbound on "+taken.Addr().String()) {
		t.Error(r.err)
	}
}

// A full disk does not stop a termination.
func TestTerminationMessageCannotBeWritten(t *testing.T) {
	r := start(t, nil, func(o *Options) { o.TerminationLog = "/dev/full" })
	r.terminates()
	if !strings.Contains(r.log.String(), "cannot write the termination message") {
		t.Error("there is no log line")
	}
}
