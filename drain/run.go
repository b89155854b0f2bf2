package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
		ctx: ctx, cfg: t.Config, dp: t.Plane, requests: t.Requests, sigkill: t.Deadline, log: t.Log, istio: t.IstioLog,
		watch: t.Watch,
		start: now, phaseBegan: now, lastArrival: now,
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
		if r.requests.forget() {
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
		r.istio.Info(lineTerminated)
	}
	r.report.Verdict = r.report.Finish.finished(r.report.Verdict)
	if cut := cutBy(r.dp); len(cut) > 0 {
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
	ctx     context.Context
	cfg     Config
	dp      DataPlane
	sigkill func() (at time.Time, from string) // may be nil
	log     *slog.Logger
	istio   *slog.Logger // for the lines of lines.go that Istio also writes
	watch   Watcher
	report  Report

	start      time.Time
	phase      Phase
	phaseBegan time.Time

	requests  *Requests
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

// resumption is why the data plane resumes.
type resumption uint8

const (
	notResuming resumption = iota
	reopening              // the listeners are being reopened, which SIGTERM interrupts
	cancelling             // the drain is being cancelled, and no SIGTERM had come when that began
)

// terminating reports whether SIGTERM has come.
func (r *run) terminating() bool { return !r.requested.Terminated.IsZero() }

// hurried reports whether the last call is the next step.
func (r *run) hurried() bool { return !r.hurriedAt.IsZero() }

// drain begins the draining phase.
func (r *run) drain() {
	r.enter(Draining)
	r.istio.Info(lineDraining)
	err := r.call(r.callDeadline(callTimeout), r.dp.Drain)
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
	if r.watch.Phase != nil {
		r.watch.Phase(p) // first: a reader of the log finds the same in the metrics
	}
	if p != Done {
		r.log.Info(linePhase, "phase", p.String(), "deadline_in", time.Until(r.graceEnds()).Round(time.Millisecond))
	}
}

// note keeps a fault for the report: each once, and a limited number, because the report has to fit into a termination
// message.
func (r *run) note(fault string) {
	if len(r.report.Faults) < maxFaults && !slices.Contains(r.report.Faults, fault) {
		r.report.Faults = append(r.report.Faults, fault)
	}
}
