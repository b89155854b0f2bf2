package envoy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
)

// fake is an Envoy's admin and its one listener, by script.
type fake struct {
	admin *httptest.Server
	ln    net.Listener

	mu    sync.Mutex
	fault http.HandlerFunc // nil: all is well
}

func startFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	var err error
	if f.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.admin = httptest.NewServer(http.HandlerFunc(f.answer))
	t.Cleanup(func() { _ = f.ln.Close(); f.admin.Close() })
	return f
}

func (f *fake) answer(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	fault := f.fault
	f.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	port := f.ln.Addr().(*net.TCPAddr).Port
	switch {
	case r.URL.Path == "/config_dump" && strings.Contains(r.URL.RawQuery, "static"):
		fmt.Fprintf(w, `{"configs":[{"listener":{"name":"in","traffic_direction":"INBOUND","address":{"socket_address":{"address":"127.0.0.1","port_value":%d}},
			"filter_chains":[{"filters":[{"typed_config":{"@type":"%s","stat_prefix":"in"}}]}]}}]}`, port, typeHTTP)
	case r.URL.Path == "/config_dump", r.URL.Path == "/listeners":
		fmt.Fprint(w, "{}")
	case r.URL.Path == "/stats":
		fmt.Fprint(w, "http.admin.downstream_rq_active: 1\nhttp.in.downstream_rq_active: 0\nhttp.in.downstream_cx_active: 1\n")
	case r.URL.Path == "/drain_listeners" && !strings.Contains(r.URL.RawQuery, "graceful"):
		_ = f.ln.Close()
	}
}

// connect opens the connection.
func (f *fake) connect(t *testing.T) (end func()) {
	t.Helper()
	client, err := net.Dial("tcp", f.ln.Addr().String())
	must.Do(t, err)
	server, err := f.ln.Accept()
	must.Do(t, err)
	end = func() { _ = client.Close(); _ = server.Close() }
	t.Cleanup(end)
	return end
}

// A broken admin API ends nothing early and delays nothing: open connections
// count as busy, and the kernel shows when there are none.
func TestAdminFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault http.HandlerFunc
		line  string
	}{
		"hangs":   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "context deadline exceeded"},
		"refuses": {nil, "connection refused"},
		"garbage": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>welcome</html>") }, "the response lacks http.admin.downstream_rq_active"},
		"503": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
		}, "unexpected status 503: no healthy upstream"},
		"half": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "http.admin.downstream_rq_active: 1\n")
		}, "unexpected EOF"},
		"torn": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		for when, connection := range map[string]string{"idle pod": "none", "a connection that ends": "ends", "a connection that stays": "stays"} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				f := startFake(t)
				log := &logstest.Buffer{}
				p, err := Start(ctx, Options{Admin: f.admin.Listener.Addr().String(), Attach: true, Log: logTo(log)})
				must.Do(t, err)
				defer p.Shut()
				end := func() {}
				if connection != "none" {
					end = f.connect(t)
				}
				f.mu.Lock()
				f.fault = tt.fault
				f.mu.Unlock()
				if tt.fault == nil {
					f.admin.Listener.Close()
				}
				cfg := soon
				if connection == "stays" {
					cfg = cutSoon
				}
				o := terminate(t, p, log, cfg)
				switch connection {
				case "none":
					o.want(t, drain.Clean)
				case "ends":
					o.stillThere(t)
					end()
					o.want(t, drain.Clean)
				case "stays":
					report := o.want(t, drain.Cut, tt.line)
					if took := time.Duration(report.Duration); took < cfg.GracePeriod-cfg.Margin {
						t.Errorf("ended after %v, on ignorance", took)
					}
				}
			})
		}
	}
}

// An Envoy that dies in the drain is noticed at once.
func TestCrash(t *testing.T) {
	r := start(t)
	r.busy()
	o := r.held()
	must.Do(t, syscall.Kill(r.running().Pid(), syscall.SIGKILL))
	o.want(t, drain.Crashed, "envoy process terminated early") // a look at the clock would have found a last call
}

// An Envoy that is stopped answers nothing and takes no SIGTERM.
func TestStopped(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			verdict, cfg := drain.Clean, soon
			if busy {
				r.busy()
				verdict, cfg = drain.Cut, cutSoon
				cfg.GracePeriod = 8 * time.Second
			}
			must.Do(t, syscall.Kill(r.running().Pid(), syscall.SIGSTOP))
			report := r.terminate(cfg)
			select {
			case got := <-report.report:
				if got.Verdict != verdict {
					t.Errorf("%+v; want %s\n%s", got, verdict, r.log)
				}
				if !strings.Contains(fmt.Sprint(got.Faults), "context deadline exceeded") {
					t.Errorf("its silence is not reported: %v", got.Faults)
				}
			case <-time.After(cfg.GracePeriod + patience):
				t.Fatalf("no end\n%s", r.log)
			}
			r.wantGone()
		})
	}
}
