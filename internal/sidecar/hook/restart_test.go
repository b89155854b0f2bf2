package hook_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// app is a server whose /live the test controls; / is answered when the test releases it.
type app struct {
	t       *testing.T
	port    uint16
	ln      net.Listener
	healthy atomic.Bool
	hangs   atomic.Bool
	arrived chan struct{}
	release chan struct{}
}

func startApp(t *testing.T) *app {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	a := &app{t: t, ln: ln, port: ln.Addr().(*net.TCPAddr).AddrPort().Port()}
	a.arrived, a.release = make(chan struct{}, 10), make(chan struct{})
	a.healthy.Store(true)
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/live":
			a.arrived <- struct{}{}
			select {
			case <-a.release:
			case <-r.Context().Done():
			}
		case a.hangs.Load():
			<-r.Context().Done()
		case !a.healthy.Load():
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	return a
}

// request begins a request that lasts until the test releases it.
func (a *app) request() {
	loadtest.Keep(a.t, fmt.Sprintf("127.0.0.1:%d", a.port), long).Ask("/")
	<-a.arrived
}

// wait runs the hook for the app, with at most atMost for it.
func (a *app) wait(probes string, minimum, atMost time.Duration) (drain.Report, time.Duration) {
	a.t.Helper()
	known, err := hook.ParseApp(strings.ReplaceAll(probes, "PORT", fmt.Sprint(a.port)))
	if err != nil {
		a.t.Fatal(err)
	}
	c := drain.DefaultConfig()
	c.MinimumDrain, c.QuietTime, c.IdleGrace = minimum, 0, 100*time.Millisecond
	log := slog.New(slog.DiscardHandler)
	o := sockets.Options{Ports: []uint16{a.port}, IdleGrace: c.IdleGrace, Log: log}
	o.IgnoreFrom = []netip.Prefix{netip.PrefixFrom(probe.Source, probe.Source.BitLen())}
	began := time.Now()
	r, err := hook.Wait(context.Background(), sockets.New(o), hook.Within(c, atMost), known, log)
	if err != nil {
		a.t.Fatal(err)
	}
	return r, time.Since(began)
}

const (
	live    = `{"liveness": {"httpGet": {"path": "/live", "port": PORT}, "periodSeconds": 1, "failureThreshold": 2}}`
	startup = `{"startup": {"httpGet": {"path": "/live", "port": PORT}, "periodSeconds": 1, "failureThreshold": 2}}`
	long    = time.Minute
)

// An app that fails its probe is restarted: the hook does not wait for its requests.
func TestRestartIsNotDelayed(t *testing.T) {
	for _, tt := range []struct {
		name, probes string
		app          func(*app)
		atMost       time.Duration // of a machine that is not busy
	}{
		{"it answers with an error", live, func(a *app) { a.healthy.Store(false); a.request() }, 2 * time.Second},
		{"it does not answer", live, func(a *app) { a.hangs.Store(true); a.request() }, 3 * time.Second},
		{"its program fails", `{"liveness": {"exec": {"command": ["false"]}}}`, (*app).request, 2 * time.Second},
		{"it has not started", startup, func(a *app) { a.healthy.Store(false) }, 2 * time.Second},
		{"it does not listen, and has no connection", live, func(a *app) { _ = a.ln.Close() }, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := startApp(t)
			tt.app(a)
			r, took := a.wait(tt.probes, long, 2*long)
			if r.Verdict != drain.Restarted || took > tt.atMost+long/4 {
				t.Errorf("%s after %v; want restart within %v: %+v", r.Verdict, took, tt.atMost, r)
			}
			t.Logf("the hook took %v", took)
		})
	}
}

// At the pod's end the app is healthy when the hook begins: the hook waits, whatever the app then does with its listener.
func TestPodEndIsNotARestart(t *testing.T) {
	const atMost = 2500 * time.Millisecond // two periods of the probe
	for _, tt := range []struct {
		name, probes string
		app          func(*app)
	}{
		{"it is healthy", live, func(*app) {}},
		{"its program succeeds", `{"liveness": {"exec": {"command": ["true"]}}}`, func(*app) {}},
		{"it has closed its listener", live, func(a *app) { _ = a.ln.Close() }},
		{"it no longer answers its startup probe", startup, func(a *app) { a.healthy.Store(false) }},
		{"it has no probe", "", func(a *app) { a.hangs.Store(true) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := startApp(t)
			a.request()
			tt.app(a)
			if r, took := a.wait(tt.probes, 0, atMost); r.Verdict != drain.Cut || took < atMost {
				t.Errorf("%s after %v; want the request to be waited for: %+v", r.Verdict, took, r)
			}
		})
	}
	t.Run("the probe is no traffic", func(t *testing.T) {
		t.Parallel()
		a := startApp(t)
		if r, took := a.wait(live, time.Second, long); r.Verdict != drain.Clean || r.Late != 0 || took > long/4 {
			t.Errorf("%s after %v: %+v", r.Verdict, took, r)
		}
	})
}

// A port without a listener: the hook has seen nothing, and its report states that.
func TestPortWithoutListener(t *testing.T) {
	a := startApp(t)
	_ = a.ln.Close()
	r, _ := a.wait("", 0, long)
	if r.Verdict != drain.Assumed || len(r.Faults) != 1 || !strings.Contains(r.Summary(), fmt.Sprintf("no process listened on port %d", a.port)) {
		t.Errorf("%s: %q, %+v", r.Verdict, r.Summary(), r)
	}
}

func TestParseApp(t *testing.T) {
	for text, want := range map[string]string{
		"{": "must be {", "{}": "neither liveness nor startup", `{"liveness": {}}`: "exactly one",
		`{"liveness": {"exec": {"command": []}}}`: "no command", `{"liveness": {"tcpSocket": {"port": 0}}}`: "1 to 65535",
	} {
		if _, err := hook.ParseApp(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
