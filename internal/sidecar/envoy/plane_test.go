package envoy

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

var ctx = context.Background()

func TestBusyAndIdle(t *testing.T) {
	r := start(t)
	r.awaitActivity(0, 0)
	idle, busy := r.idle(), r.busy()
	if err := r.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	r.awaitActivity(2, 1)
	late := r.dial() // still accepted
	late.Ask("/")
	if resp, _ := late.Answer(t); !resp.Close {
		t.Error("no Connection: close during the drain")
	}
	open, err := r.Open(ctx, 10)
	if err != nil || len(open) != 1 || open[0].Peer != busy.LocalAddr().String() {
		t.Errorf("open: %v, %v; want the busy one, %v", open, err, busy.LocalAddr())
	}
	r.app.let()
	if resp, body := busy.Answer(t); body != "done" || !resp.Close {
		t.Errorf("the request in flight got %v %q", resp, body)
	}
	_, _ = busy.Close(), late.Close()
	for pushed, end := 0, time.After(patience); ; pushed++ {
		if a, _ := r.Activity(ctx); a.Connections == 1 && a.Busy == 0 {
			break
		}
		select {
		case <-r.Changes():
		case <-end:
			t.Fatalf("the end of the last request was not pushed; %d changes were", pushed)
		}
	}
	if err := r.StopAccepting(ctx); err != nil {
		t.Fatal(err)
	}
	if c, err := net.Dial("tcp", r.listen); err == nil {
		c.Close()
		t.Error("a connection was accepted after StopAccepting")
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	r.wantGone()
	if b, err := io.ReadAll(idle.R); err != nil || len(b) != 0 {
		t.Errorf("the idle connection got %q, %v; want its end", b, err)
	}
	if lines := strings.Split(r.accessLog(), "\n"); len(lines) != 3 {
		t.Errorf("%d lines of access log; want 3", len(lines))
	}
}

func TestOpaque(t *testing.T) {
	r := start(t, func(o *Options) { o.Bootstrap.Inbound[0].Protocol = "tcp" })
	c := r.dial()
	r.awaitActivity(1, 1) // idle, but nothing shows it
	open, err := r.Open(ctx, 10)
	if err != nil || len(open) != 1 || open[0].Protocol != "tcp" {
		t.Errorf("open: %v, %v", open, err)
	}
	_ = c.Close()
	r.awaitActivity(0, 0)
}

func TestAuto(t *testing.T) {
	r := start(t, func(o *Options) { o.Bootstrap.Inbound[0].Protocol = "auto" })
	c := r.idle()
	r.awaitActivity(1, 0)
	c.Ask("/slow")
	<-r.app.requests
	r.awaitActivity(1, 1)
	r.app.let()
	c.Answer(t)
	r.awaitActivity(1, 0)
}

func TestKill(t *testing.T) {
	r := start(t)
	c := r.busy()
	r.Kill()
	r.wantGone()
	if b, _ := io.ReadAll(c.R); len(b) != 0 {
		t.Errorf("got %q", b)
	}
}

func TestUnixAdmin(t *testing.T) {
	r := start(t, func(o *Options) { o.Admin = "unix:" + t.TempDir() + "/admin" })
	r.awaitActivity(0, 0)
	if err := r.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// An Envoy of others is drained and left to them.
func TestAttach(t *testing.T) {
	theirs := start(t)
	ours, err := Start(ctx, Options{Admin: theirs.o.Admin, Attach: true, Log: theirs.Plane.log})
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Shut()
	if err := ours.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	c := theirs.dial()
	c.Ask("/")
	if resp, _ := c.Answer(t); !resp.Close {
		t.Error("no Connection: close")
	}
	if err := ours.Close(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-theirs.Exited():
		t.Error("an Envoy of others was ended")
	default:
	}
}

func TestCannotStart(t *testing.T) {
	r := start(t)
	for name, tt := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no program":  {func(o *Options) { o.Admin, o.Path = nettest.FreeAddress(t, "127.0.0.1"), "/nowhere/envoy" }, "find envoy (--envoy-path)"},
		"no config":   {func(o *Options) { o.Admin, o.Config = nettest.FreeAddress(t, "127.0.0.1"), "/nowhere/envoy.yaml" }, "before it was ready"},
		"bad admin":   {func(o *Options) { o.Admin = "15000" }, "must be host:port or unix:PATH"},
		"taken admin": {func(o *Options) {}, "choose another by proxyAdminPort"},
		"taken listener": {func(o *Options) {
			o.Admin = nettest.FreeAddress(t, "127.0.0.1")
			o.Bootstrap.Inbound[0].Listen = r.o.Admin
		}, "before it was ready"},
	} {
		o := r.o
		tt.change(&o)
		if p, err := Start(ctx, o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
			if err == nil {
				p.Shut()
			}
		}
	}
}

// A cancelled drain replaces the Envoy, which cannot stop sending Connection: close.
func TestResume(t *testing.T) {
	r := start(t)
	before := r.running().Pid()
	if err := r.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.StopAccepting(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Exited():
		t.Fatal("the data plane has ended")
	default:
	}
	if r.running().Pid() == before {
		t.Error("the same Envoy")
	}
	c := r.dial()
	c.Ask("/")
	if resp, body := c.Answer(t); resp.Close || body != "done" {
		t.Errorf("%+v %q", resp, body)
	}
	r.awaitActivity(1, 0)
	r.terminate(soon).want(t, drain.Clean)
	r.wantGone()
}

// The whole way: a hook, no SIGTERM, and a termination later on.
func TestDrainIsCancelled(t *testing.T) {
	t.Parallel()
	r := start(t)
	cfg := soon
	cfg.GracePeriod, cfg.Margin = 4*time.Second, 100*time.Millisecond // time for Envoy to answer on a busy machine
	report, err := drain.Termination{Plane: r.Plane, Config: cfg, Trigger: drain.Hook, Log: discard}.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict != drain.Resumed || len(report.Faults) > 0 {
		t.Fatalf("%+v\n%s", report, r.log)
	}
	c := r.busy()
	o := r.held()
	r.app.let()
	c.Answer(t)
	_ = c.Close()
	o.want(t, drain.Clean)
}
