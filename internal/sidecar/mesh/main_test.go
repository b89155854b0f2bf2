package mesh

import (
	"context"
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
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/envoy"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
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
	return hook.Until(c, hook.DefaultLeave)
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
