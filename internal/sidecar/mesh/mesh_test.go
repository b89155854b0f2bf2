package mesh

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16")
	os.Exit(m.Run())
}

// patience bounds every wait of these tests.
const patience = time.Minute

// pod is a real Envoy before an app whose responses the test releases.
type pod struct {
	t             *testing.T
	admin, listen string
	app           uint16
	arrived       chan struct{}
	free          chan struct{}
	release       func()
	envoy         *envoy.Plane
	access        string
	log           *logstest.Buffer
}

func startPod(t *testing.T, protocol string, args ...string) *pod {
	t.Helper()
	t.Parallel() // it waits for deadlines
	program := peers.Need(t, "envoy")
	ln := nettest.Listen(t, "127.0.0.1:0")
	p := &pod{
		t: t, admin: nettest.FreeAddress(t, "127.0.0.1"), listen: nettest.FreeAddress(t, "127.0.0.1"), app: ln.Addr().(*net.TCPAddr).AddrPort().Port(),
		arrived: make(chan struct{}, 100), free: make(chan struct{}), access: filepath.Join(t.TempDir(), "access.log"), log: &logstest.Buffer{},
	}
	p.release = sync.OnceFunc(func() { close(p.free) })
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
			return
		}
		if r.URL.Path == "/slow" {
			p.arrived <- struct{}{}
			select {
			case <-p.free:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "done")
	}))
	t.Cleanup(p.release)
	var err error
	p.envoy, err = envoy.Start(t.Context(), envoy.Options{
		Admin: p.admin, Path: program, DrainTime: 45 * time.Second, Concurrency: 1, Args: args,
		Bootstrap: envoy.Bootstrap{Inbound: []envoy.Route{{Listen: p.listen, App: ln.Addr().String(), Protocol: protocol}}, AccessLog: p.access},
		Stdout:    p.log, Stderr: p.log, Log: slog.New(slog.NewTextHandler(p.log, nil)),
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
	t.Cleanup(p.envoy.Shut)
	return p
}

// short has no minimum drain, and a deadline that no test reaches by accident.
func short() drain.Config {
	c := drain.DefaultConfig()
	c.MinimumDrain, c.QuietTime, c.IdleGrace = 0, 0, 0
	c.GracePeriod = 2 * patience
	return hook.Until(c, timers.DefaultLeave)
}

// run is a hook that has not returned.
type run struct {
	t    *testing.T
	hook *Hook
	done chan drain.Report
}

func (p *pod) hook(c drain.Config, change func(*Options)) *run {
	p.t.Helper()
	o := Options{Options: envoy.Options{Admin: p.admin, Log: slog.New(slog.NewTextHandler(p.log, nil))}, NoApp: true}
	if change != nil {
		change(&o)
	}
	o.Fallback.Log, o.Fallback.IdleGrace = o.Log, 100*time.Millisecond
	h, err := New(c, o)
	if err != nil {
		p.t.Fatal(err)
	}
	r := &run{p.t, h, make(chan drain.Report, 1)}
	ctx, cancel := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		report, err := h.Wait(ctx)
		if err != nil {
			p.t.Error(err)
		}
		r.done <- report
	})
	p.t.Cleanup(func() { cancel(); running.Wait() })
	return r
}

// holds fails when the hook returns although a client waits.
func (r *run) holds() {
	r.t.Helper()
	select {
	case report := <-r.done:
		r.t.Fatalf("the hook has returned: %+v", report)
	case <-time.After(700 * time.Millisecond):
	}
}

func (r *run) returns(want drain.Verdict) drain.Report {
	r.t.Helper()
	select {
	case report := <-r.done:
		if report.Verdict != want {
			r.t.Errorf("%s; want %s: %+v", report.Verdict, want, report)
		}
		return report
	case <-time.After(patience):
		r.t.Fatal("the hook does not return")
		return drain.Report{}
	}
}

func (p *pod) dial() *loadtest.Kept {
	p.t.Helper()
	return loadtest.Keep(p.t, p.listen, patience)
}

// idle is a client whose request has been answered.
func (p *pod) idle() *loadtest.Kept {
	p.t.Helper()
	c := p.dial()
	c.Ask("/")
	c.Answer(p.t)
	return c
}

// busy is a client whose request the app does not answer yet.
func (p *pod) busy() *loadtest.Kept {
	p.t.Helper()
	c := p.dial()
	c.Ask("/slow")
	<-p.arrived
	return c
}

// wantUndrained checks that Envoy answers an idle client as before.
func (p *pod) wantUndrained(idle *loadtest.Kept) {
	p.t.Helper()
	idle.Ask("/")
	if resp, body := idle.Answer(p.t); resp.Close || body != "done" {
		p.t.Errorf("after the hook: %v %q", resp, body)
	}
}

func (p *pod) awaitLog(text string) {
	p.t.Helper()
	polltest.Eventually(p.t, "the log has "+text, func() bool { return strings.Contains(p.log.String(), text) }, p.log)
}

// An app's hook waits for a request, not for an idle client, and leaves Envoy as it is: the container may only restart.
func TestAppWatchesOnly(t *testing.T) {
	p := startPod(t, "http")
	idle, busy := p.idle(), p.busy()
	r := p.hook(short(), nil)
	r.holds()
	p.release()
	if resp, _ := busy.Answer(t); resp.Close {
		t.Error("the hook of an app has drained Envoy")
	}
	r.returns(drain.Clean)
	r.hook.End(t.Context())
	p.wantUndrained(idle)
	p.dial().Ask("/") // listens
}

// An app that fails its liveness probe is restarted: its hook waits neither for its requests nor for the minimum drain, and
// leaves Envoy as it is.
func TestRestartIsNotDelayed(t *testing.T) {
	p := startPod(t, "http")
	idle, busy := p.idle(), p.busy()
	c := short()
	c.MinimumDrain = patience
	fails := &probe.Probe{Exec: &probe.Exec{Command: []string{"false"}}}
	began := time.Now()
	r := p.hook(c, func(o *Options) { o.App = &hook.App{Liveness: fails} })
	r.returns(drain.Restarted)
	r.hook.End(t.Context())
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the hook took %v", took)
	}
	p.release()
	if resp, _ := busy.Answer(t); resp.Close {
		t.Error("the restart has drained Envoy")
	}
	p.wantUndrained(idle)
}

// The hook of Envoy's own container drains, stops the listeners, and ends Envoy with a whole access log.
func TestSidecarDrains(t *testing.T) {
	p := startPod(t, "http")
	p.idle()
	p.idle()
	busy := p.busy()
	r := p.hook(short(), func(o *Options) { o.Sidecar = true })
	r.holds()
	p.release()
	if resp, body := busy.Answer(t); !resp.Close || body != "done" {
		t.Errorf("the request in flight got %v %q; want Connection: close", resp, body)
	}
	r.returns(drain.Clean)
	if c, err := net.Dial("tcp", p.listen); err == nil {
		_ = c.Close()
		t.Error("Envoy still listens")
	}
	r.hook.End(t.Context())
	<-p.envoy.Exited()
	if log, err := os.ReadFile(p.access); err != nil || bytes.Count(log, []byte("\n")) != 3 || !bytes.Contains(log, []byte("/slow")) {
		t.Errorf("access log: %v\n%s", err, log)
	}
}

// A hook waits for requests in flight, and for open connections of protocols that are not HTTP.
func TestProtocols(t *testing.T) {
	for _, tt := range []struct {
		name, protocol string
		begin          func(p *pod) (end func())
	}{
		{"HTTP/2: a slow request and quick ones on one connection", "http", func(p *pod) func() {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			transport := &http.Transport{Protocols: protocols}
			get := func(path string) {
				resp, err := (&http.Client{Transport: transport}).Get("http://" + p.listen + path)
				if err != nil {
					p.t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			slow := make(chan struct{})
			go func() { defer close(slow); get("/slow") }()
			<-p.arrived
			quick, stop := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(quick)
				for {
					select {
					case <-stop:
						return
					case <-time.After(100 * time.Millisecond):
						get("/")
					}
				}
			}()
			return func() { p.release(); <-slow; close(stop); <-quick; transport.CloseIdleConnections() }
		}},
		{"WebSocket", "http", func(p *pod) func() {
			c := p.dial()
			fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: app\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			if resp, err := http.ReadResponse(c.R, nil); err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				p.t.Fatalf("%+v, %v", resp, err)
			}
			return func() { _ = c.Close() }
		}},
		{"opaque TCP", "tcp", func(p *pod) func() {
			c := p.dial()
			fmt.Fprint(c, "\x00\x01opaque")
			return func() { _ = c.Close() }
		}},
		{"half a request", "auto", func(p *pod) func() {
			c := p.dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHos")
			return func() { _ = c.Close() }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := startPod(t, tt.protocol)
			end := tt.begin(p)
			r := p.hook(short(), nil)
			r.holds()
			end()
			r.returns(drain.Clean)
		})
	}
}

// Envoy serves the app's outbound connections until each of its containers has exited: those with our hook, which leave a
// process, and those without it, whose sockets show them. Istio-proxy's hook has waited for 10 s when this begins.
func TestAwaitApp(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name    string
		hooks   time.Duration // until which containers with our hook run; 0: none came
		sockets time.Duration // until which other containers have sockets
		err     error
		want    time.Duration
	}{
		{name: "a gateway's pod has no app", want: 0},
		{name: "one container, which takes 3 s", hooks: 3 * second, sockets: 3 * second, want: 3*second + appGone},
		{name: "a second container without our hook works for 15 s", hooks: 2 * second, sockets: 15 * second, want: 15*second + appGone},
		{name: "a container without a socket", hooks: 4 * second, want: 4 * second},
		{name: "no hook came: sockets show the app", sockets: 5 * second, want: 5*second + appGone},
		{name: "an app that never exits: the deadline", hooks: 100 * second, want: 19 * second},
		{name: "another native sidecar, which ends after istio-proxy: the deadline", hooks: second, sockets: 100 * second, want: 19 * second},
		{name: "sockets cannot be attributed: the hooks alone", hooks: 3 * second, err: errors.New("denied"), want: 3 * second},
		{name: "nothing can be seen: no wait", err: errors.New("denied"), want: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				h := &Hook{config: drain.DefaultConfig(), began: began.Add(-10 * second), containers: &containers{}, o: Options{Options: envoy.Options{Log: slog.New(slog.DiscardHandler)}}}
				h.others = func() (int, error) {
					if tt.err == nil && time.Since(began) < tt.sockets {
						return 1, nil
					}
					return 0, tt.err
				}
				if tt.hooks > 0 {
					h.containers.connected.Store(1)
					h.containers.running.Store(1)
					time.AfterFunc(tt.hooks, func() { h.containers.running.Store(0) })
				}
				h.awaitApp(t.Context(), h.endBy())
				if took := time.Since(began); took < tt.want-appLook || took > tt.want+2*appLook {
					t.Errorf("%v; want %v", took, tt.want)
				}
			})
		})
	}
}

// The hooks of one Envoy meet by whatever name they call its address; those of another Envoy in the same network
// namespace do not.
func TestSocketOf(t *testing.T) {
	one := socketOf("127.0.0.1:15000")
	for admin, same := range map[string]bool{"localhost:15000": true, "[::1]:15000": true, "127.0.0.1:15001": false, "unix:/run/envoy.sock": false} {
		if (socketOf(admin) == one) != same {
			t.Errorf("%s meets at %s, 127.0.0.1:15000 at %s", admin, socketOf(admin), one)
		}
	}
}
