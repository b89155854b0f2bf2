package envoy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// soon is a termination that ends as soon as nothing is busy. Its last call comes so late
// that a test which sees it has failed, however slow the machine is.
var soon = drain.Config{
	MinimumDrain: 100 * time.Millisecond,
	IdleGrace:    50 * time.Millisecond,
	GracePeriod:  40 * time.Second,
	Margin:       time.Second,
	PollInterval: 20 * time.Millisecond,
}

// cutSoon is soon with a last call after 3 s, for tests that wait for it.
var cutSoon = func() drain.Config {
	c := soon
	c.GracePeriod = 4 * time.Second
	return c
}()

// termination is a drain.Termination that has begun and not ended.
type termination struct {
	t       *testing.T
	cfg     drain.Config
	began   time.Time
	waiting chan struct{} // closed when the minimum drain is complete
	report  chan drain.Report
	log     *logstest.Buffer
}

func terminate(t *testing.T, p *Plane, log *logstest.Buffer, cfg drain.Config) *termination {
	o := &termination{t: t, cfg: cfg, began: time.Now(), waiting: make(chan struct{}), report: make(chan drain.Report, 1), log: log}
	done := make(chan struct{})
	go func() {
		defer close(done)
		report, err := drain.Termination{
			Plane: p, Config: cfg, Log: slog.New(slog.NewTextHandler(log, nil)),
			Watch: drain.Watcher{Phase: func(phase drain.Phase) {
				if phase == drain.Waiting {
					close(o.waiting)
				}
			}},
		}.Run(ctx)
		if err != nil {
			t.Error(err)
		}
		o.report <- report
	}()
	t.Cleanup(func() { <-done })
	return o
}

func (r *running) terminate(cfg drain.Config) *termination {
	return terminate(r.t, r.Plane, r.log, cfg)
}

// held is a termination that something in flight holds.
func (r *running) held() *termination {
	r.t.Helper()
	o := r.terminate(soon)
	o.stillThere(r.t)
	return o
}

// answers reads the last responses of connections, and closes them.
func (o *termination) answers(conns ...*loadtest.Kept) {
	o.t.Helper()
	for _, c := range conns {
		if resp, body := c.Answer(o.t); !resp.Close || body != "done" {
			o.t.Error(resp, body)
		}
		_ = c.Close()
	}
}

// endsWith has the termination end with the last responses.
func (o *termination) endsWith(conns ...*loadtest.Kept) {
	o.t.Helper()
	o.answers(conns...)
	o.want(o.t, drain.Clean)
}

// stillThere waits until only activity holds the end, and a little more.
func (o *termination) stillThere(t *testing.T) {
	t.Helper()
	select {
	case <-o.waiting:
	case <-time.After(patience):
		t.Fatalf("the minimum drain does not end\n%s", o.log)
	}
	select {
	case report := <-o.report:
		t.Fatalf("ended early: %+v\n%s", report, o.log)
	case <-time.After(4 * settle): // longer than an answer has to stand
	}
}

// want waits for the end. That it comes within the grace period is drain's own promise, and
// tested there in virtual time.
func (o *termination) want(t *testing.T, verdict drain.Verdict, lines ...string) drain.Report {
	t.Helper()
	select {
	case report := <-o.report:
		if report.Verdict != verdict {
			t.Errorf("verdict %s; want %s: %+v\n%s", report.Verdict, verdict, report, o.log)
		}
		for _, line := range lines {
			isFault := slices.ContainsFunc(report.Faults, func(f string) bool { return strings.Contains(f, line) })
			if !isFault && !strings.Contains(o.log.String(), line) {
				t.Errorf("%q is not logged: %+v\n%s", line, report, o.log)
			}
		}
		return report
	case <-time.After(o.cfg.GracePeriod + patience):
		t.Fatalf("no end\n%s", o.log)
	}
	panic("unreachable")
}

// ignoresSignals has the address at which this test's program, started again, is an Envoy that nothing ends but SIGKILL.
const ignoresSignals = "LASTCALL_ENVOY_TEST_IGNORES_SIGNALS"

func playPart() {
	if admin := os.Getenv(ignoresSignals); admin != "" {
		signal.Ignore(syscall.SIGTERM)
		panic(http.ListenAndServe(admin, http.HandlerFunc(answerIgnoringSignals)))
	}
}

// answerIgnoringSignals agrees to everything and does nothing.
func answerIgnoringSignals(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/config_dump", "/listeners":
		fmt.Fprint(w, "{}")
	case "/stats":
		fmt.Fprint(w, ownRequest+": 1\n")
	}
}

// An Envoy that ignores SIGTERM is killed, and that is no cut
// when no client was there.
func TestSignalsIgnored(t *testing.T) {
	t.Parallel()
	admin := nettest.FreeAddress(t, "127.0.0.1")
	log := &logstest.Buffer{}
	script := filepath.Join(t.TempDir(), "envoy")
	text := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s\n", ignoresSignals, admin, os.Args[0])
	programtest.Write(t, script, []byte(text))
	p, err := Start(ctx, Options{Admin: admin, Path: script, Config: "none", Stdout: log, Stderr: log, Log: logTo(log)})
	if err != nil {
		t.Fatal(err, log)
	}
	defer p.Shut()
	terminate(t, p, log, soon).want(t, drain.Clean, "Envoy still running after SIGTERM; killing it")
	if err := syscall.Kill(p.running().Pid(), 0); err == nil {
		t.Error("it is still there")
	}
}

// An Envoy behind a script that does not hand signals on ends too, and has
// written its access log.
func TestBehindScript(t *testing.T) {
	envoy := peers.Need(t, "envoy")
	script := filepath.Join(t.TempDir(), "envoy")
	// The shell exits at SIGTERM, the rest 300 ms after Envoy. All write to a file, whose end does not wait for the others.
	text := "#!/bin/sh\nsh -c 'trap \"\" TERM; \"$@\"; sleep 0.3' sh " + envoy + ` "$@"` + "\ntrue\n"
	programtest.Write(t, script, []byte(text))
	r := start(t, func(o *Options) { o.Path, o.Stdout, o.Stderr = script, os.Stderr, os.Stderr })
	for range 3 {
		_ = r.idle().Close()
	}
	r.awaitActivity(0, 0)
	r.terminate(soon).want(t, drain.Clean)
	r.wantLogged(3)
	if len(r.running().Group()) > 0 {
		t.Error("something of it is still there")
	}
}

var ctx = context.Background()

func TestBusyAndIdle(t *testing.T) {
	r := start(t)
	r.awaitActivity(0, 0)
	idle, busy := r.idle(), r.busy()
	must.Do(t, r.Drain(ctx))
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
	must.Do(t, r.StopAccepting(ctx))
	if c, err := net.Dial("tcp", r.listen); err == nil {
		c.Close()
		t.Error("a connection was accepted after StopAccepting")
	}
	must.Do(t, r.Close(ctx))
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
	must.Do(t, r.Drain(ctx))
	must.Do(t, r.Close(ctx))
}

// An Envoy of others is drained and left to them.
func TestAttach(t *testing.T) {
	theirs := start(t)
	ours, err := Start(ctx, Options{Admin: theirs.o.Admin, Attach: true, Log: theirs.Plane.log})
	must.Do(t, err)
	defer ours.Shut()
	must.Do(t, ours.Drain(ctx))
	theirs.wantCloses(true)
	must.Do(t, ours.Close(ctx))
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

// Resume may come after the listeners were closed, too.
func TestResume(t *testing.T) {
	r := start(t)
	must.Do(t, r.Drain(ctx))
	must.Do(t, r.StopAccepting(ctx))
	must.Do(t, r.Resume(ctx))
	r.wantCloses(false)
	r.awaitActivity(1, 0)
	r.terminate(soon).want(t, drain.Clean)
	r.wantGone()
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
	must.Do(t, err)
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

// A cancelled drain does not start an Envoy again that has ended by itself: the agent ends with it.
func TestResumeAfterExit(t *testing.T) {
	t.Parallel()
	r := start(t)
	must.Do(t, syscall.Kill(r.running().Pid(), syscall.SIGKILL))
	<-r.Exited()
	if err := r.Resume(ctx); err == nil || !strings.Contains(err.Error(), "it has exited") {
		t.Errorf("error %v", err)
	}
	if !r.running().HasExited() {
		t.Error("another Envoy runs")
	}
}
