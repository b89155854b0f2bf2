package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Termination is one termination of a data plane. Plane and Config are required.
type Termination struct {
	Plane  DataPlane
	Config Config // start from DefaultConfig

	// Trigger is the signal that begins the termination.
	Trigger Signal

	// Requests has what is requested from then on; if it has nothing yet, Run sends it Trigger. nil: no signal follows.
	Requests *Requests

	// Deadline returns when SIGKILL comes and the source of that, such as "delete"; a zero time if unknown. It is called
	// at the beginning and after each Sooner, and must not block. A moment that is later than the grace period's end, or
	// before the beginning, is ignored. nil: only the grace period counts.
	Deadline func() (at time.Time, from string)

	// Log is slog.Default() when nil.
	Log *slog.Logger

	// IstioLog gets the lines that Istio's agent logs as well, which describe a proxy; Log when nil.
	IstioLog *slog.Logger

	Watch Watcher
}

// Watcher is called as a termination proceeds. Its functions run in Run's goroutine and must not
// block; each may be nil.
type Watcher struct {
	Phase    func(Phase)    // a phase has begun
	Activity func(Activity) // the activity has changed
}

// Run takes the data plane from the first signal to its end, and reports. It returns
//
//  1. when the data plane has been ended: because nothing was busy, at the last call, or after the
//     fixed time (Clean, Cut, Ended);
//  2. when the data plane has ended by itself (Crashed);
//  3. at QuitNow (Quit), or at AppEnded (Exited);
//  4. when a Hook began the drain, no SIGTERM followed, and the drain was cancelled (Resumed): the
//     data plane serves again, and Run may be called again;
//  5. when ctx ends: the data plane is killed (Quit);
//  6. with an error, at once and without touching the data plane, when the Termination is not
//     valid. There is no other error: Report.Faults lists the failures during a termination.
func (t Termination) Run(ctx context.Context) (Report, error) {
	if t.Plane == nil {
		return Report{}, errors.New("drain: no data plane")
	}
	if err := t.Config.Validate(); err != nil {
		return Report{}, fmt.Errorf("drain: %w", err)
	}
	t.Log = cmp.Or(t.Log, slog.Default())
	t.IstioLog = cmp.Or(t.IstioLog, t.Log)
	t.Requests = cmp.Or(t.Requests, new(Requests))
	if now, _ := t.Requests.Look(); !now.Begun {
		t.Requests.Send(t.Trigger)
	}
	return t.run(ctx), nil
}

func (t Termination) run(ctx context.Context) Report {
	now := time.Now()
	r := &run{
		Termination: t, ctx: ctx, start: now, phaseBegan: now, lastArrival: now,
		report: Report{Mode: t.Config.Mode.String(), Trigger: t.Trigger.String(), Began: now},
	}
	r.shorten()
	r.takeRequests()
	switch {
	case r.requested.Exit != "":
		r.end(stopNow)
	case t.Trigger == HookAlone:
		r.hookAlone()
	case t.Config.Mode == ExitOnZero:
		r.exitOnZero()
	case t.Trigger == IstioDrain:
		r.istioDrained()
	case t.Config.Mode == Fixed:
		r.fixed()
	case t.Trigger == Hook || t.Trigger == AppHook:
		r.istioDrained()
	default:
		r.istioExitOnZero()
	}
	if r.report.Verdict == Resumed {
		r.enter(Serving)
		if r.Requests.forget() {
			// SIGTERM came while the drain was being cancelled. The report has what the hook's last call has cut, too.
			t.Trigger = Terminate
			report := t.run(ctx)
			if report.Open = append(r.report.Open, report.Open...); len(report.Open) > 0 && report.Verdict == Clean {
				report.Verdict = Cut
			}
			return report
		}
	} else {
		r.enter(Done)
		r.IstioLog.Info(lineTerminated)
	}
	r.report.Verdict = r.report.Finish.finished(r.report.Verdict)
	if cut := cutBy(r.Plane); len(cut) > 0 {
		r.report.Open = append(r.report.Open, cut...)
		if r.report.Verdict == Clean {
			r.report.Verdict = Cut
		}
	}
	r.report.Duration = Millis(time.Since(r.start))
	return r.report
}

// run is one termination in progress.
type run struct {
	Termination // its Config changes when SIGKILL moves

	ctx    context.Context
	report Report

	start      time.Time
	phase      Phase
	phaseBegan time.Time

	requested Requested       // of the last takeRequests
	changed   <-chan struct{} // the next one

	hurriedAt time.Time  // when the last call became the next step; zero before
	ending    bool       // the last call has begun
	resuming  resumption // the call of Resume that runs
	reopened  bool       // clients may have connected after a last call

	activity      Activity   // as last seen; Known is false if Activity failed
	lookedAt      time.Time  // when the last successful call of Activity began
	triedAt       time.Time  // when the last call of it began
	looked        bool       // Activity has succeeded once
	firstSeen     uint64     // Arrivals of the first Activity
	firstRaced    uint64     // Raced of the first Activity
	firstFailed   uint64     // Failed of the first Activity
	beforeFinish  OpaqueEnds // at the app's SIGTERM
	lastArrival   time.Time
	drainFailed   bool            // Drain has failed: changes may not be pushed
	unknown       bool            // the last Activity was unknown, and that has been logged
	unknownLogged time.Time       // when it was logged
	activeLogged  int             // the number in the last lineStillActive
	lastLine      time.Time       // when lineStillActive was logged: at most once a second
	lastHolders   time.Time       // when noteHolders listed conversations
	namesFailed   error           // why Open is not called again
	returned      <-chan struct{} // closed when the latest call, and all before it, have returned
}

// terminating reports whether SIGTERM has come.
func (r *run) terminating() bool { return !r.requested.Terminated.IsZero() }

// hurried reports whether the last call is the next step.
func (r *run) hurried() bool { return !r.hurriedAt.IsZero() }

// drain begins the draining phase.
func (r *run) drain() {
	r.enter(Draining)
	r.IstioLog.Info(lineDraining)
	err := r.call(r.callDeadline(callTimeout), r.Plane.Drain)
	if r.drainFailed = err != nil; err != nil && !errors.Is(err, errInterrupted) {
		r.faultf(lineDrainFailed, err)
	}
}

// enter begins a phase.
func (r *run) enter(p Phase) {
	now := time.Now()
	if r.phase != Serving {
		r.report.Phases = append(r.report.Phases, Span{r.phase, Millis(now.Sub(r.phaseBegan))})
	}
	r.phase, r.phaseBegan = p, now
	if r.Watch.Phase != nil {
		r.Watch.Phase(p) // first: a reader of the log finds the same in the metrics
	}
	if p != Done {
		r.Log.Info(linePhase, "phase", p.String(), "deadline_in", time.Until(r.graceEnds()).Round(time.Millisecond))
	}
}

// deadline is the moment of the last call.
func (r *run) deadline() time.Time { return r.start.Add(r.Config.LastCallAfter()) }

// graceEnds is the moment of the kubelet's SIGKILL.
func (r *run) graceEnds() time.Time { return r.start.Add(r.Config.GracePeriod) }

// shorten moves SIGKILL forward to the moment that Termination.Deadline returns. All other moments follow from it.
func (r *run) shorten() {
	if r.Deadline == nil || r.Config.Mode != ExitOnZero {
		return
	}
	at, from := r.Deadline()
	if grace := at.Sub(r.start); grace > 0 && grace < r.Config.GracePeriod {
		r.Config.GracePeriod = grace
		r.Config.Deadline = min(r.Config.Deadline, grace-r.Config.margin())
		r.report.Deadline, r.report.DeadlineFrom = Millis(grace), from
		r.Log.Warn(lineSooner, "deadline_in", time.Until(at).Round(time.Millisecond), "deadline_from", from)
	}
}

// least is LeastGrace, but no more than the margin.
func (r *run) least() time.Duration { return min(r.Config.margin(), LeastGrace) }

// killBy is when the attempt at an orderly end is abandoned: an eighth of the margin before the kubelet's SIGKILL, so
// that the report can still be written. After a hurry (a second signal or a notice) it is one margin from that moment.
// Istio's modes have no grace period: they need it only after a hurry.
func (r *run) killBy() time.Time {
	by := later(r.graceEnds(), r.requested.Terminated.Add(r.least()))
	if r.hurried() {
		soon := r.hurriedAt.Add(r.Config.margin())
		if by = earlier(by, soon); r.Config.Mode != ExitOnZero {
			by = soon
		}
	}
	return by.Add(-r.Config.margin() / 8)
}

// killDeadline is when a Kill that does not return is abandoned: in time for the report before SIGKILL.
func (r *run) killDeadline() time.Time {
	now := time.Now()
	until, least := now.Add(callTimeout), max(r.Config.margin()/16, overrun)
	if r.Config.Mode != ExitOnZero {
		return until
	}
	return earlier(until, later(r.graceEnds().Add(-least), now.Add(least)))
}

// callDeadline is when a call that may take at most d is abandoned: no call may use up the time of the last call. After
// the deadline, or in a hurry, a call has an eighth of the shortest time that the last call can have.
func (r *run) callDeadline(d time.Duration) time.Time {
	now := time.Now()
	until, short := now.Add(d), now.Add(r.least()/8)
	switch {
	case r.hurried():
		return earlier(until, short)
	case r.Config.Mode != ExitOnZero:
		return until
	}
	return earlier(until, later(r.deadline(), short))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// sooner is earlier for times of which zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.IsZero() {
		return later(a, b)
	}
	return earlier(a, b)
}
