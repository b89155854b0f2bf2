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
	must(t, r.Drain(ctx))
	r.awaitActivity(2, 1)
	late := r.wantCloses(true) // still accepted
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
	must(t, r.StopAccepting(ctx))
	if c, err := net.Dial("tcp", r.listen); err == nil {
		c.Close()
		t.Error("a connection was accepted after StopAccepting")
	}
	must(t, r.Close(ctx))
	r.wantGone()
	if b, err := io.ReadAll(idle.R); err != nil || len(b) != 0 {
		t.Errorf("the idle connection got %q, %v; want its end", b, err)
	}
	r.wantLogged(3)
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
	must(t, r.Drain(ctx))
	must(t, r.Close(ctx))
}

// An Envoy of others is drained and left to them.
func TestAttach(t *testing.T) {
	theirs := start(t)
	ours, err := Start(ctx, Options{Admin: theirs.o.Admin, Attach: true, Log: theirs.Plane.log})
	must(t, err)
	defer ours.Shut()
	must(t, ours.Drain(ctx))
	theirs.wantCloses(true)
	must(t, ours.Close(ctx))
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

// A hook, no SIGTERM, and a termination later on. A cancelled drain replaces the Envoy, which cannot stop sending
// Connection: close.
func TestDrainIsCancelled(t *testing.T) {
	t.Parallel()
	r := start(t)
	before := r.running().Pid()
	cfg := soon
	cfg.GracePeriod, cfg.Margin = 4*time.Second, 100*time.Millisecond // time for Envoy to answer on a busy machine
	report, err := drain.Termination{Plane: r.Plane, Config: cfg, Trigger: drain.Hook, Log: discard}.Run(ctx)
	must(t, err)
	if report.Verdict != drain.Resumed || len(report.Faults) > 0 {
		t.Fatalf("%+v\n%s", report, r.log)
	}
	select {
	case <-r.Exited():
		t.Fatal("the data plane has ended")
	default:
	}
	if r.running().Pid() == before {
		t.Error("the same Envoy")
	}
	_ = r.wantCloses(false).Close()
	c := r.busy()
	o := r.held()
	r.app.let()
	o.endsWith(c)
	r.wantGone()
}
