package rehearsal

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// How much later than expected an event may come. On a busy machine the row's allowance is added to each.
const (
	slack = 400 * time.Millisecond

	// transit is how long the last byte takes from the pod to the client, which measures it.
	transit = 25 * time.Millisecond

	clockError = 20 * time.Millisecond

	// exitLag is lastcall's limit, from the last byte to the pod's end.
	exitLag = 50 * time.Millisecond

	// envoyExitLag is the same with Envoy, which takes longer to flush and to exit. With idle connections the kernel
	// reports no event at the last byte: the agent polls every 300 ms, and then reads Envoy's stats.
	envoyExitLag     = 100 * time.Millisecond
	envoyExitLagIdle = 450 * time.Millisecond

	// Envoy 1.40 closes the idle connections of a draining listener in the last third of its drain time, drainDuration
	// (45 s), at random moments. Earlier versions leave them open. The delayed close takes a second.
	envoyIdleFrom = 30 * time.Second
	envoyIdleTo   = 46 * time.Second

	// tooClose is how near the request's end may be to the moment that would cut it, for either outcome to be right.
	tooClose = 250 * time.Millisecond

	// killTogether is how near two containers' SIGKILLs are if either may have cut the request.
	killTogether = 100 * time.Millisecond
)

// Envoy's local reply when the upstream connection ends: 95 bytes of text/plain.
const (
	terminationBody = "upstream connect error or disconnect/reset before headers. " +
		"reset reason: connection termination"
	terminationDetails = "503 UC upstream_reset_before_response_started{connection_termination}"
	viaUpstream        = "503 - via_upstream"
)

// circumstances are the values from which an expectation follows, in addition to the strategy.
type circumstances struct {
	left  time.Duration // of the request, at the scale-down
	grace time.Duration
	envoy bool // the sidecar is a real Envoy

	allowance time.Duration // how much later events may be on this machine
}

// expectation is the expected result of a strategy. Times are from the scale-down.
type expectation struct {
	lost     bool
	answered span   // 200, or the end of a lost request
	body     string // of the 503; empty: not judged
	log      string // in the gateway's line; empty: not judged

	gone   span          // the pod
	lag    time.Duration // maximum from the last byte to the pod's end; zero: not judged
	stays  time.Duration // minimum, whatever ended before: the minimum drain
	killed *bool         // whether SIGKILL ends it; nil: not judged

	appAfter bool   // the app's SIGTERM comes after the last byte
	named    bool   // the report's verdict is cut, and it names the request
	unnamed  bool   // it names the client only
	idle     bool   // idle connections are closed with a FIN
	why      string // in words
}

// String is the expectation as text, for -o json and for a row that failed.
func (e expectation) String() string {
	text := "200 " + e.answered.String()
	if e.lost {
		text = "503 " + e.answered.String()
	}
	text += "; pod gone " + e.gone.String()
	if e.lag > 0 {
		text += fmt.Sprintf(", at most %v after the last byte", e.lag)
	}
	if e.killed != nil && *e.killed {
		text += ", by SIGKILL"
	}
	if e.why != "" {
		text += " (" + e.why + ")"
	}
	return text
}

// expect returns the expected result of a strategy: two alternatives if the request ends so close to the moment that
// would cut it that either is right.
func expect(s strategy.Strategy, c circumstances) []expectation {
	early, late := c, c
	near := tooClose + c.allowance
	early.left -= near
	late.left += near
	a, b := expectOne(s, early), expectOne(s, late)
	if a.lost == b.lost {
		return []expectation{expectOne(s, c)}
	}
	e := expectOne(s, c)
	other := a
	if a.lost == e.lost {
		other = b
	}
	const why = "the request ends too close to the cut for one outcome"
	e.why, other.why = why, why
	other.answered = span{min(other.answered.from, c.left), max(other.answered.to, c.left)}
	other.gone = span{other.gone.from - near, other.gone.to + near}
	return []expectation{e, other}
}

func expectOne(s strategy.Strategy, c circumstances) expectation {
	p := podOf(s, c)
	if s.Sidecar.IsLastcall() {
		return expectLastcall(&p, s, c)
	}
	return expectIstio(&p, s, c)
}

// span is the range of times in which an event is expected, from the scale-down or the pod's SIGTERM.
type span struct{ from, to time.Duration }

// exactly is a span of one moment.
func exactly(t time.Duration) span { return span{t, t} }

// atLeast is the span of the later of two events.
func (s span) atLeast(o span) span { return span{max(s.from, o.from), max(s.to, o.to)} }

// holds reports whether an event at d is in the span, or no later than slack after it.
func (s span) holds(d, slack time.Duration) bool { return d >= s.from-clockError && d <= s.to+slack }

func (s span) String() string {
	if s.to-s.from < 10*time.Millisecond {
		return "after " + terminal.Measured(s.from)
	}
	return fmt.Sprintf("after %s to %s", terminal.Measured(s.from), terminal.Measured(s.to))
}

// expectIstio: the app's exit or the sidecar's cuts the request, or neither. Polls make the times uncertain.
func expectIstio(p *podend.Pod, s strategy.Strategy, c circumstances) expectation {
	// An idle connection counts for the sidecar. Envoy closes it, if that comes before SIGKILL.
	isCounted := s.Sidecar == strategy.ExitOnZero && s.Idle
	isClosed := isCounted && c.envoy && p.Grace > envoyIdleFrom
	tr := podend.Traffic{Busy: c.left, Idle: s.Idle && !isClosed, Polls: podend.Late}
	late := p.Course(tr)
	tr.Polls = podend.Early
	early := p.Course(tr)

	e := expectation{lost: c.left > early.Cut, answered: exactly(c.left)}
	if e.lost {
		e.answered = span{early.Cut, late.Cut}
	}
	app, side := early.Containers[0], early.Containers[len(p.Containers)-1]
	if e.lost {
		e.body = terminationBody
		if late.Containers[len(p.Containers)-1].Cut < app.Cut-killTogether-c.allowance {
			e.log = terminationDetails
		}
	}
	// The app may notice that the client of a lost request is gone, or continue the request.
	tr.Busy = min(c.left, early.Cut)
	noticed := p.Course(tr)
	if noticed.Killed || e.lost && early.Killed && early.Cut >= min(app.Kill, side.Kill) {
		yes := true
		e.killed = &yes
	}
	goneOf := func(i int) span { return span{noticed.Containers[i].Gone, late.Containers[i].Gone} }
	sideGone := goneOf(len(p.Containers) - 1)
	switch {
	case isClosed:
		e.why = "an idle connection counts, and Envoy closes it in the last third of its drain time"
		sideGone = span{envoyIdleFrom, envoyIdleTo + time.Second}.atLeast(e.answered)
		sideGone = span{min(sideGone.from, side.Kill), min(sideGone.to, side.Kill)}
	case isCounted:
		e.why = "an idle connection counts"
	}
	e.gone = goneOf(0).atLeast(sideGone)
	return e
}

// expectLastcall: the client gets the app's response, or a 503 at the last call. The pod ends with the last byte, but
// not before the minimum drain.
func expectLastcall(p *podend.Pod, s strategy.Strategy, c circumstances) expectation {
	ending := p.Course(podend.Traffic{Busy: c.left, Idle: s.Idle})
	no, limit := false, exitLag
	switch {
	case c.envoy && s.Idle:
		limit = envoyExitLagIdle
	case c.envoy:
		limit = envoyExitLag
	}
	if c.left <= p.LastCall {
		gone := exactly(ending.Gone)
		if limit > slack/2 {
			gone.to += limit
		}
		return expectation{
			answered: exactly(c.left), gone: gone, lag: limit, stays: min(drain.DefaultMinimumDrain, p.LastCall),
			killed: &no, appAfter: true, idle: s.Idle,
		}
	}
	if c.envoy && (s.Sidecar.IsNative() || s.Sidecar.IsHooks()) {
		return expectEnvoyNative(p, s, c, ending)
	}
	e := expectation{
		lost: true, answered: span{ending.Cut, p.Grace}, named: true,
		gone: span{ending.Cut, p.Grace}, idle: s.Idle,
		why: fmt.Sprintf("the last call of a grace period of %s is at %s",
			terminal.Seconds(p.Grace), terminal.Seconds(p.LastCall)),
	}
	if s.App == strategy.Exits {
		e.killed = &no
	} else {
		// An app may continue a request whose client is gone until SIGKILL.
		e.gone.to = max(e.gone.to, min(ending.Containers[0].Kill, max(c.left, p.Grace)))
	}
	if c.envoy {
		// Envoy cannot be made to answer single requests: they end when it exits. The report names the clients, from
		// the kernel's socket table, which has no requests.
		e.unnamed = true
		e.body, e.log = terminationBody, terminationDetails
	} else {
		e.log = viaUpstream
	}
	return e
}

// expectEnvoyNative: the hook's last call reports the remaining clients, and the app gets its SIGTERM. A native sidecar
// stays until the app has exited, and its Envoy cannot end single requests: the app does, or its SIGKILL.
func expectEnvoyNative(p *podend.Pod, s strategy.Strategy, c circumstances, ending podend.Course) expectation {
	limit := "the last call"
	if s.Sidecar.IsHooks() {
		limit = "the hook's deadline"
	}
	e := expectation{
		lost: c.left > ending.Cut, answered: exactly(min(c.left, ending.Cut)), named: true, unnamed: true, idle: s.Idle,
		why: fmt.Sprintf("%s is at %s, and the request ends with the app", limit, terminal.Seconds(p.LastCall)),
	}
	e.gone = e.answered
	if s.App != strategy.Exits {
		e.gone.to += drain.LeastGrace // the sidecar's SIGTERM comes after the app's exit
	}
	if e.lost {
		e.body = terminationBody // the sidecar's or the gateway's: both end at the same moment
		if s.App == strategy.Exits {
			e.log = viaUpstream // the sidecar's own response
		}
	}
	return e
}

// podOf is the pod of a strategy: the app, and its sidecar.
func podOf(s strategy.Strategy, c circumstances) podend.Pod {
	app := podend.Container{Name: "app", Role: podend.App, Reaction: podend.Exits}
	if s.App == strategy.ClosesListener {
		app.Reaction = podend.Finishes
	}
	side := podend.Container{Name: "sidecar", Role: podend.Proxy, Native: s.Sidecar.IsNative(), Reaction: podend.Exits}
	p := podend.Pod{Grace: s.GraceOr(c.grace)}
	if s.Sleep > 0 {
		app.Hook = podend.Hook{Kind: podend.SleepHook, Duration: s.Sleep, IsKnown: true}
		side.Hook = app.Hook
	}
	if s.Netstat {
		side.Hook.Kind = podend.LoopHook
	}
	switch s.Sidecar {
	case strategy.Fixed:
		side.Reaction, side.Drain = podend.FixedDrain, cmp.Or(s.TerminationDrain, drain.DefaultTerminationDrain)
	case strategy.ExitOnZero:
		side.Reaction, side.Drain = podend.PollsZero, istio.MinimumDrain
	case strategy.IstioNative, strategy.HooksNative:
		side.Hook.Kind = podend.NotifyHook
	case strategy.Hooks:
		side.Hook.Kind = podend.AppEndHook
	case strategy.Lastcall:
		side.Reaction = podend.Waits
	case strategy.LastcallNative: // a real Envoy cannot end single requests: they end with it, after the app
		if !c.envoy {
			side.Reaction = podend.Waits
		}
	}
	if s.Sidecar.IsLastcall() {
		app.Hook.Kind = podend.DrainHook
		config := drain.DefaultConfig()
		config.GracePeriod = p.Grace
		if s.Sidecar.IsHooks() {
			config.Margin = timers.DefaultLeave
		}
		p.SetDrain(config)
	}
	p.Containers = []podend.Container{app, side}
	return p
}
