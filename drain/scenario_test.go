package drain_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	dt "github.com/lastcall-dev/lastcall/drain/draintest"
)

const (
	s  = time.Second
	ms = time.Millisecond
)

// signal is one that comes at a moment.
type signal struct {
	at  time.Duration
	sig drain.Signal
}

// notice is a moment of SIGKILL that becomes known at another.
type notice struct{ at, sigkill time.Duration }

// scenario is one termination: what is given, and what is expected of it. An
// expectation that is empty is not looked at; those of obey are, always.
type scenario struct {
	name    string
	mode    drain.Mode
	config  func(*drain.Config) // changes drain.DefaultConfig
	clients []dt.Client
	faults  []dt.Fault
	dies    time.Duration
	polled  bool
	signals []signal      // the first begins it, at 0; none: one SIGTERM
	notices []notice      // of an earlier SIGKILL; one at 0 is known from the beginning
	ctxEnds time.Duration // zero: it does not

	verdict drain.Verdict // always looked at
	leaves  time.Duration // when Run returns; always looked at
	phases  string        // "draining 5s, waiting 0s"
	calls   string        // "0s Drain, 5s CloseIdle(2s)", all but Activity
	endings string        // "3 answered, 1 called", up to Run's return
	heldBy  string        // "GET /delay/10 9.5s"
	open    string        // the same, of the last call
	finish  string        // "5s: 2, 2 ended, 1 dropped, exits"
	late    uint64
	faulted string   // a part of the faults in the report, or "none"
	logged  []string // "5s Checking for active connections...", in this order, with others between
	silent  string   // a part of a line that must not come
}

// outcome is the result of a scenario.
type outcome struct {
	scenario
	cfg      drain.Config
	report   drain.Report
	took     time.Duration
	calls    []dt.Call
	ways     []dt.Ending
	overlaps []string
	lines    []line
}

// run runs it in the bubble of the caller.
func (sc scenario) run(t *testing.T) outcome {
	t.Helper()
	cfg := drain.DefaultConfig()
	cfg.Mode = sc.mode
	if sc.config != nil {
		sc.config(&cfg)
	}
	plane := dt.New(dt.Script{Clients: sc.clients, Faults: sc.faults, Dies: sc.dies, Polled: sc.polled})
	defer plane.Stop()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if sc.ctxEnds > 0 {
		defer time.AfterFunc(sc.ctxEnds, cancel).Stop()
	}
	first := drain.Terminate
	if len(sc.signals) > 0 {
		first = sc.signals[0].sig
	}
	requests, killedAt := new(drain.Requests), make(chan time.Time, 8)
	for i, sig := range sc.signals {
		if i > 0 {
			defer time.AfterFunc(sig.at, func() { requests.Send(sig.sig) }).Stop()
		}
	}

	start := time.Now()
	var sigkill time.Time
	for _, n := range sc.notices {
		if n.at == 0 {
			sigkill = start.Add(n.sigkill)
			continue
		}
		defer time.AfterFunc(n.at, func() {
			killedAt <- start.Add(n.sigkill)
			requests.Send(drain.Sooner)
		}).Stop()
	}
	deadline := func() (time.Time, string) {
		select {
		case sigkill = <-killedAt:
		default:
		}
		return sigkill, "delete"
	}
	book := &logbook{start: start}
	report, err := drain.Termination{Plane: plane, Config: cfg, Trigger: first, Requests: requests, Deadline: deadline, Log: slog.New(book), Watch: drain.Watcher{Phase: func(p drain.Phase) {
		if p == drain.Finishing {
			plane.StopApp()
		}
	}}}.Run(ctx)
	if err != nil {
		panic(err)
	}
	return outcome{
		scenario: sc, cfg: cfg, report: report, took: time.Since(start),
		calls: plane.Calls(), ways: plane.Endings(), overlaps: plane.Overlaps(), lines: book.lines,
	}
}

func runAll(t *testing.T, scenarios []scenario) {
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := sc.run(t)
				o.obey(t)
				o.expect(t)
				if t.Failed() {
					t.Logf("phases %s\ncalls %s\nfaults %q\n%s", phases(o.report), calls(o.calls), o.report.Faults, o.lines)
				}
			})
		})
	}
}

func (o outcome) expect(t *testing.T) {
	t.Helper()
	if o.report.Verdict != o.verdict || o.took != o.leaves {
		t.Errorf("%s at %v, want %s at %v", o.report.Verdict, o.took, o.verdict, o.leaves)
	}
	began := drain.Terminate
	if len(o.signals) > 0 {
		began = o.signals[0].sig
	}
	if got := o.report.Trigger; got != began.String() && !(len(o.signals) > 1 && got == drain.Terminate.String()) {
		t.Errorf("begun by %s, want %s", got, began)
	}
	for _, e := range []struct{ what, got, want string }{
		{"phases", phases(o.report), o.phases},
		{"calls", calls(o.calls), o.scenario.calls},
		{"endings", endings(o.ways), o.endings},
		{"held by", names(o.report.HeldBy), o.heldBy},
		{"open", names(o.report.Open), o.open},
		{"finish", finish(o.report.Finish), o.finish},
	} {
		if e.want != "" && e.got != e.want {
			t.Errorf("%s\n got %s\nwant %s", e.what, e.got, e.want)
		}
	}
	if o.late != 0 && o.report.Late != o.late {
		t.Errorf("late: %d, want %d", o.report.Late, o.late)
	}
	switch faults := strings.Join(o.report.Faults, "; "); {
	case o.faulted == "none" && faults != "", o.faulted != "none" && !strings.Contains(faults, o.faulted):
		t.Errorf("faults: %q, want %s", faults, cmp.Or(o.faulted, "any"))
	}
	rest := o.lines
	for _, want := range o.logged {
		i := slices.IndexFunc(rest, func(l line) bool { return l.String() == want })
		if i < 0 {
			t.Errorf("the log has no %q, or not in this place", want)
			continue
		}
		rest = rest[i+1:]
	}
	var still string
	for _, l := range o.lines {
		if o.silent != "" && strings.Contains(l.msg, o.silent) {
			t.Errorf("the log has %q", l)
		}
		if o.mode == drain.ExitOnZero && strings.HasPrefix(l.msg, "There are still ") {
			if l.msg == still {
				t.Errorf("%q says nothing new", l)
			}
			still = l.msg
		}
	}
}

// hangsForGood is true of a method that does not respect its context.
func (o outcome) hangsForGood(m dt.Method) bool {
	return slices.ContainsFunc(o.faults, func(f dt.Fault) bool { return f.Method == m && f.Hang && (f.IgnoresContext || m == dt.Kill) })
}

// obey checks what holds of every termination.
func (o outcome) obey(t interface {
	Helper()
	Errorf(string, ...any)
}) {
	t.Helper()
	if len(o.overlaps) > 0 {
		t.Errorf("more than one call at a time: %q", o.overlaps)
	}
	for _, c := range o.calls {
		if c.UnderWay && !o.hangsForGood(c.Method) {
			t.Errorf("%s has not been waited for", c.Method)
		}
	}
	if time.Duration(o.report.Duration) > o.took {
		t.Errorf("reported %v, took %v", time.Duration(o.report.Duration), o.took)
	}
	var sum drain.Millis
	for _, span := range o.report.Phases {
		sum += span.Took
	}
	if len(o.report.Phases) > 0 && sum != o.report.Duration {
		t.Errorf("the phases take %v together, the whole %v", time.Duration(sum), time.Duration(o.report.Duration))
	}
	if len(o.report.Faults) > 20 || len(o.report.HeldBy) > 10 {
		t.Errorf("a report without end: %d faults, held by %d", len(o.report.Faults), len(o.report.HeldBy))
	}
	for _, fault := range o.report.Faults {
		if strings.Contains(fault, "canceled") {
			t.Errorf("what was broken off is called a fault: %q", fault)
		}
	}
	for _, kind := range []string{"There are still ", "data plane activity unknown"} {
		last := -time.Hour
		for _, l := range o.lines {
			if !strings.HasPrefix(l.msg, kind) {
				continue
			}
			if l.at-last < s {
				t.Errorf("%q comes %v after the last of its kind", l, l.at-last)
			}
			last = l.at
		}
	}
	if o.mode != drain.ExitOnZero {
		return
	}
	lastCall, killed := dt.Forever, false
	for _, c := range o.calls {
		switch c.Method {
		case dt.LastCall:
			lastCall = min(lastCall, c.At)
		case dt.Kill:
			killed = true
		}
	}
	untold := slices.ContainsFunc(o.report.Faults, func(f string) bool { return strings.HasPrefix(f, "last call: ") })
	if untold {
		lastCall = min(lastCall, o.cfg.GracePeriod-o.cfg.Margin) // it was due, and could not be made
	}
	cut := false
	for _, e := range o.ways {
		ended := e.How == dt.Called || e.How == dt.Killed
		cut = cut || ended
		if ended && e.At < lastCall && o.report.Verdict != drain.Quit {
			t.Errorf("%s was ended at %v, before the last call", e.Peer, e.At)
		}
	}
	switch o.report.Verdict {
	case drain.Clean:
		if cut {
			t.Errorf("the verdict is clean, but %s", endings(o.ways))
		}
	case drain.Cut:
		if !cut && !untold && o.report.Finish == nil {
			t.Errorf("the verdict is cut, but nothing was: %s", endings(o.ways))
		}
	case drain.Quit:
		if !killed {
			t.Errorf("the verdict is quit, but the data plane has not been killed")
		}
	case drain.Crashed, drain.Resumed:
	default:
		t.Errorf("verdict %q", o.report.Verdict)
	}
	text, err := json.Marshal(o.report)
	if err != nil {
		t.Errorf("report: %v", err)
	}
	var facts map[string]any
	if err := json.Unmarshal(text, &facts); err != nil || facts["verdict"] != string(o.report.Verdict) || reflect.TypeOf(facts["phases"]) == nil && len(o.report.Phases) > 0 {
		t.Errorf("report %s: %v", text, err)
	}
}

// What a scenario expects is written as text; here is how it reads.

func phases(r drain.Report) string {
	var out []string
	for _, p := range r.Phases {
		out = append(out, fmt.Sprint(p.Phase, " ", time.Duration(p.Took)))
	}
	return strings.Join(out, ", ")
}

func calls(calls []dt.Call) string {
	var out []string
	for _, c := range calls {
		with := ""
		if c.Method == dt.CloseIdle || c.Method == dt.LastCall {
			with = fmt.Sprintf("(%v)", c.With)
		}
		out = append(out, fmt.Sprint(c.At, " ", c.Method, with))
	}
	return strings.Join(out, ", ")
}

func endings(endings []dt.Ending) string {
	count := map[dt.Way]int{}
	for _, e := range endings {
		count[e.How]++
	}
	var out []string
	for _, how := range []dt.Way{dt.Answered, dt.Refused, dt.Called, dt.Killed, dt.Died} {
		if count[how] > 0 {
			out = append(out, fmt.Sprint(count[how], " ", how))
		}
	}
	return strings.Join(out, ", ")
}

func names(conversations []drain.Conversation) string {
	var out []string
	for _, c := range conversations {
		out = append(out, fmt.Sprint(cmp.Or(c.Request, c.Protocol), " ", time.Duration(c.Age)))
	}
	return strings.Join(out, ", ")
}

// line is one line of the log, at its moment.
type line struct {
	at  time.Duration
	msg string
}

func (l line) String() string { return fmt.Sprint(l.at, " ", l.msg) }

// logbook is a slog.Handler that keeps the lines.
type logbook struct {
	start time.Time
	mu    sync.Mutex
	lines []line
}

func (b *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logbook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logbook) WithGroup(string) slog.Handler            { return b }
func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line{r.Time.Sub(b.start), r.Message})
	return nil
}
