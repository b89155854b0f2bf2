package lastcall

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

const (
	s  = time.Second
	ms = time.Millisecond
)

// signalAt is a signal of a test at a moment; Context is the end of the context.
type signalAt struct {
	at     time.Duration
	signal drain.Signal
}

// play runs a scripted data plane under Run in virtual time.
func play(t *testing.T, script dt.Script, signals []signalAt, opts ...Option) (Report, time.Duration, string) {
	t.Helper()
	for _, name := range []string{timers.GracePeriod, timers.MinimumDrain, timers.QuietTime, timers.IdleGrace, timers.Margin, timers.DrainedByHook, variableHookToken} {
		t.Setenv(name, "")
	}
	var log bytes.Buffer
	var report Report
	var ended time.Duration
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		plane := dt.New(script)
		defer plane.Stop()
		ch := make(chan drain.Signal)
		for _, sig := range signals {
			time.AfterFunc(sig.at, func() { ch <- sig.signal })
		}
		opts = append([]Option{WithSignals(ch), WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}, opts...)
		var err error
		if report, err = Run(t.Context(), plane, opts...); (err != nil) != (report.Verdict == drain.Crashed) {
			t.Errorf("%s: %v", report.Verdict, err)
		}
		ended = time.Since(began)
		plane.Kill()
		if over := plane.Overlaps(); len(over) > 0 {
			t.Errorf("calls overlap: %q", over)
		}
	})
	return report, ended, log.String()
}

// When a program ends, by what began its termination and by what its clients do.
func TestRun(t *testing.T) {
	busy := []dt.Client{dt.Get("/delay/10", 58*s, 10*s)}
	idle := []dt.Client{dt.Idle(10 * s)}
	steady := dt.Every(s, "/", 0, 10*time.Minute, 10*ms)
	term := []signalAt{{60 * s, drain.Terminate}}
	for name, tt := range map[string]struct {
		clients []dt.Client
		signals []signalAt
		opts    []Option
		verdict drain.Verdict
		ends    time.Duration // after the first signal
		trigger string
		logged  string
	}{
		"idle: the minimum drain":                {signals: term, verdict: drain.Clean, ends: 5 * s, trigger: "SIGTERM", logged: "msg=draining trigger=SIGTERM minimum_drain=5s"},
		"busy: the end of the request":           {clients: busy, signals: term, verdict: drain.Clean, ends: 8 * s, trigger: "SIGTERM", logged: `msg="drain phase" phase=waiting`},
		"clients that never learn: the cap":      {clients: steady, signals: term, verdict: drain.Clean, ends: 10*s + 10*ms, trigger: "SIGTERM", logged: `level=WARN msg="new connections still arriving at the drain cap; closing listeners"`},
		"endless: the last call":                 {clients: []dt.Client{dt.Get("/", s, time.Hour)}, signals: term, verdict: drain.Cut, ends: 28 * s, trigger: "SIGTERM", logged: "verdict=cut"},
		"options":                                {clients: []dt.Client{dt.Get("/", s, time.Hour)}, signals: term, opts: []Option{WithGracePeriod(10 * s), WithLastCallMargin(s)}, verdict: drain.Cut, ends: 9 * s, trigger: "SIGTERM"},
		"a second SIGTERM: the last call":        {clients: busy, signals: []signalAt{{60 * s, drain.Terminate}, {62 * s, drain.Terminate}}, verdict: drain.Cut, ends: 2 * s, trigger: "SIGTERM"},
		"SIGTERM again within a second":          {clients: busy, signals: []signalAt{{60 * s, drain.Terminate}, {61*s - ms, drain.Terminate}}, verdict: drain.Clean, ends: 8 * s, trigger: "SIGTERM"},
		"Ctrl-C, idle: at once":                  {clients: idle, signals: []signalAt{{60 * s, drain.Interrupt}}, verdict: drain.Clean, ends: 0, trigger: "SIGINT"},
		"Ctrl-C, busy: the end of the request":   {clients: busy, signals: []signalAt{{60 * s, drain.Interrupt}}, verdict: drain.Clean, ends: 8 * s, trigger: "SIGINT"},
		"drained by the hook, quiet: at once":    {clients: idle, signals: term, opts: []Option{WithDrainedByHook(true)}, verdict: drain.Clean, ends: 0, trigger: "SIGTERM", logged: "drained by the preStop hook before SIGTERM"},
		"drained by the hook, busy":              {clients: []dt.Client{dt.Get("/delay/10", 52*s, 10*s)}, signals: term, opts: []Option{WithDrainedByHook(true)}, verdict: drain.Clean, ends: 2 * s, trigger: "SIGTERM"},
		"drained by the hook, but it was not":    {clients: steady, signals: term, opts: []Option{WithDrainedByHook(true)}, verdict: drain.Clean, ends: 10*s + 10*ms, trigger: "SIGTERM", logged: "requests still arrive although a preStop hook should have drained the pod"},
		"drained by the hook, one just before":   {clients: []dt.Client{dt.Get("/", 59*s, 10*ms)}, signals: term, opts: []Option{WithDrainedByHook(true)}, verdict: drain.Clean, ends: 5 * s, trigger: "SIGTERM"},
		"a hook, then SIGTERM":                   {clients: busy, signals: []signalAt{{60 * s, drain.Hook}, {70 * s, drain.Terminate}}, verdict: drain.Clean, ends: 10 * s, trigger: "hook"},
		"a hook, cancelled, then SIGTERM":        {clients: steady, signals: []signalAt{{60 * s, drain.Hook}, {120 * s, drain.Terminate}}, verdict: drain.Clean, ends: 70*s + 10*ms, trigger: "SIGTERM", logged: "verdict=resumed"},
		"a hook drains although a hook may have": {signals: []signalAt{{60 * s, drain.Hook}, {61 * s, drain.Terminate}}, opts: []Option{WithDrainedByHook(true)}, verdict: drain.Clean, ends: 5 * s, trigger: "hook"},
	} {
		t.Run(name, func(t *testing.T) {
			r, ended, log := play(t, dt.Script{Clients: tt.clients}, tt.signals, tt.opts...)
			if got := ended - tt.signals[0].at; r.Verdict != tt.verdict || got != tt.ends || r.Trigger != tt.trigger {
				t.Errorf("%s by %s after %v, want %s by %s after %v", r.Verdict, r.Trigger, got, tt.verdict, tt.trigger, tt.ends)
			}
			if !strings.Contains(log, tt.logged) || !strings.Contains(log, `msg="`+r.Summary()+`" verdict=`) {
				t.Errorf("want %q in the log:\n%s", tt.logged, log)
			}
			if strings.Contains(log, "Proxy") {
				t.Errorf("the log speaks of a proxy:\n%s", log)
			}
		})
	}
}

// The end of the context drains, too. A SIGTERM that follows it may be the same one (signal.NotifyContext),
// and does not make the last call.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := dt.New(dt.Script{Clients: []dt.Client{dt.Get("/delay/10", 58*s, 10*s)}})
		defer plane.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 60*s)
		defer cancel()
		r, err := Run(ctx, plane, WithSignals(make(chan drain.Signal)), WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil || r.Verdict != drain.Clean || r.Trigger != "context" || time.Duration(r.Duration) != 8*s {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A data plane that ends by itself has the others drained.
func TestOneEndsByItself(t *testing.T) {
	r, ended, log := play(t, dt.Script{Dies: 60 * s}, nil)
	if r.Verdict != drain.Crashed || r.Trigger != "server ended" || ended != 60*s {
		t.Errorf("alone: %+v after %v", r, ended)
	}
	if !strings.Contains(log, `level=WARN msg=draining trigger="server ended"`) || strings.Contains(log, "nvoy") {
		t.Errorf("the log:\n%s", log)
	}
	synctest.Test(t, func(t *testing.T) {
		one := dt.New(dt.Script{Dies: 60 * s})
		other := dt.New(dt.Script{Clients: []dt.Client{dt.Get("/delay/10", 58*s, 10*s)}})
		defer one.Stop()
		defer other.Stop()
		began := time.Now()
		r, err := Run(t.Context(), one, With(other), WithSignals(make(chan drain.Signal)), WithLogger(slog.New(slog.DiscardHandler)))
		if took := time.Since(began); err == nil || r.Verdict != drain.Crashed || took != 68*s {
			t.Errorf("of two: %+v after %v, %v", r, took, err)
		}
		if got := other.Endings(dt.Answered); len(got) != 1 {
			t.Errorf("endings of the other: %v", other.Endings())
		}
	})
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	if got, err := fromEnvironment(get); err != nil || got.config != drain.DefaultConfig() || got.drainedByHook {
		t.Errorf("nothing is set: %+v, %v", got, err)
	}
	env = map[string]string{
		"TERMINATION_GRACE_PERIOD_SECONDS": "60", "MINIMUM_DRAIN_DURATION": "6s", "LASTCALL_QUIET_TIME": "3s",
		"LASTCALL_IDLE_GRACE": "4s", "LASTCALL_LAST_CALL_MARGIN": "1s", "LASTCALL_DRAINED_BY_HOOK": "true", "LASTCALL_HOOK_TOKEN": "x",
	}
	want := drain.DefaultConfig()
	want.GracePeriod, want.MinimumDrain, want.QuietTime, want.IdleGrace, want.Margin = 60*s, 6*s, 3*s, 4*s, s
	if got, err := fromEnvironment(get); err != nil || got.config != want || !got.drainedByHook || got.hookToken != "x" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, wrong := range map[string]string{
		"TERMINATION_GRACE_PERIOD_SECONDS": "60s", "MINIMUM_DRAIN_DURATION": "6", "LASTCALL_QUIET_TIME": "-1s",
		"LASTCALL_IDLE_GRACE": "soon", "LASTCALL_LAST_CALL_MARGIN": "1", "LASTCALL_DRAINED_BY_HOOK": "maybe",
	} {
		env = map[string]string{name: wrong}
		if _, err := fromEnvironment(get); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%s is %q: must be ", name, wrong)) {
			t.Errorf("%s=%s: %v", name, wrong, err)
		}
	}
	t.Setenv("LASTCALL_QUIET_TIME", "soon")
	if _, err := Run(t.Context(), NewWorker("")); err == nil || !strings.HasPrefix(err.Error(), "lastcall: LASTCALL_QUIET_TIME is ") {
		t.Error(err)
	}
	t.Setenv("LASTCALL_QUIET_TIME", "")
	if _, err := Run(t.Context(), NewWorker(""), WithGracePeriod(0)); err == nil || !strings.Contains(err.Error(), "grace period is 0s") {
		t.Error(err)
	}
}

// Misspelt variables are named, those of other programs are not.
func TestMisspeltVariables(t *testing.T) {
	for name, warns := range map[string]bool{"LASTCALL_QUITE_TIME": true, "LASTCALL_LASTCALL_MARGIN": true, "lastcall_idle_grace": true,
		"MINIMUM_DRAIN_DURATION": false, "LASTCALL_LAST_CALL_SPREAD": false, "LASTCALL_RESTART_WAIT": false, "TERMINATION_DRAIN_DURATION_SECONDS": false} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "1s")
			var log bytes.Buffer
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, _ = Run(ctx, NewWorker(""), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			if got := strings.Contains(log.String(), "did you mean") && strings.Contains(log.String(), "variable="+name); got != warns {
				t.Errorf("warns: %v, want %v:\n%s", got, warns, &log)
			}
		})
	}
}

// TestNilArguments: a nil argument is an error and not a panic.
func TestNilArguments(t *testing.T) {
	for want, opts := range map[string][]Option{
		"lastcall: server is nil":                                                     nil,
		"lastcall: an option is nil":                                                  {nil},
		"lastcall: a listener of WithListener is nil":                                 {WithListener(nil)},
		"lastcall: With: data plane is nil":                                           {With(nil)},
		"lastcall: grace period is 30ns: must be 1s or more, such as 30*time.Second":  {WithGracePeriod(30)},
		"lastcall: grace period is 999ms: must be 1s or more, such as 30*time.Second": {WithGracePeriod(999 * time.Millisecond)},
	} {
		var server *http.Server
		if len(opts) > 0 {
			server = &http.Server{Addr: "127.0.0.1:0"}
		}
		if _, err := Serve(t.Context(), server, opts...); err == nil || err.Error() != want {
			t.Errorf("%v: want %s", err, want)
		}
	}
	var none context.Context
	const noContext = "lastcall: the context is nil: context.Background() never ends"
	if _, err := Run(none, NewWorker("")); err == nil || err.Error() != noContext {
		t.Errorf("%v: want %s", err, noContext)
	}
	if _, err := Serve(none, &http.Server{Addr: "127.0.0.1:0"}); err == nil || err.Error() != noContext {
		t.Errorf("%v: want %s", err, noContext)
	}
	if _, err := Run(t.Context(), nil); err == nil || err.Error() != "lastcall: data plane is nil" {
		t.Errorf("%v: want lastcall: data plane is nil", err)
	}
}
