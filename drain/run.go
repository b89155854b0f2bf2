package drain

import (
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

	// Signals delivers the signals that follow Trigger. Run reads it until it returns. It must
	// not be closed; nil means that none follows.
	Signals <-chan Signal

	// Log is slog.Default() when nil.
	Log *slog.Logger

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
//     valid. There is no other error: what fails during a termination is listed in Report.Faults.
func (t Termination) Run(ctx context.Context) (Report, error) {
	if err := t.validate(); err != nil {
		return Report{}, fmt.Errorf("drain: %w", err)
	}
	if t.Log == nil {
		t.Log = slog.Default()
	}
	return t.run(ctx), nil
}

func (t Termination) validate() error {
	if t.Plane == nil {
		return errors.New("no data plane")
	}
	return t.Config.Validate()
}

func (t Termination) run(ctx context.Context) Report {
	now := time.Now()
	r := &run{
		ctx: ctx, cfg: t.Config, dp: t.Plane, signals: t.Signals, log: t.Log, watch: t.Watch,
		start: now, phaseBegan: now, lastArrival: now,
		report: Report{Mode: t.Config.Mode.String(), Trigger: t.Trigger.String(), Began: now},
	}
	r.hear(t.Trigger)
	switch {
	case t.Trigger == QuitNow || t.Trigger == AppEnded:
		r.end(told)
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
		if r.terminating {
			// SIGTERM came while the drain was being cancelled. It has been read from Signals, so
			// the caller will not see it, nor what the hook's last call has cut.
			t.Trigger = Terminate
			report := t.run(ctx)
			if report.Open = append(r.report.Open, report.Open...); len(report.Open) > 0 && report.Verdict == Clean {
				report.Verdict = Cut
			}
			return report
		}
	} else {
		r.enter(Done)
		r.log.Info(lineTerminated)
	}
	r.report.Duration = Millis(time.Since(r.start))
	return r.report
}

// run is one termination on its way.
type run struct {
	ctx     context.Context
	cfg     Config
	dp      DataPlane
	signals <-chan Signal
	log     *slog.Logger
	watch   Watcher
	report  Report

	start      time.Time
	phase      Phase
	phaseBegan time.Time

	certain     bool      // the sidecar's container ends; false after an app's hook alone
	reopening   bool      // the listeners are opened again, which SIGTERM breaks off
	reopened    bool      // connections may have come after a last call
	terminating bool      // SIGTERM has come: this is final
	terminated  time.Time // when terminating became true
	hurry       bool      // last call now
	hurriedAt   time.Time // when hurry became true
	quit        bool      // leave at once
	appEnded    bool      // because the app has ended
	ending      bool      // the last call, or what follows it, is under way

	activity    Activity  // the last look; Known is false when it failed
	lookedAt    time.Time // when the last look that succeeded began
	looked      bool      // there has been a look that succeeded
	firstSeen   uint64    // arrivals at the first look
	firstRaced  uint64    // races at the first look
	lastArrival time.Time
	mute        bool            // the data plane was not reached by Drain: it may not push
	unknown     bool            // the last look failed, and the log has it
	unknownSaid time.Time       // when that was logged
	activeSaid  int             // the number in the last lineStillActive
	lastLine    time.Time       // of lineStillActive, which is written once a second at most
	lastHolders time.Time       // of noteHolders
	namesFailed error           // why open is not asked again
	resuming    bool            // Resume is under way, and SIGTERM had not come before
	returned    <-chan struct{} // closed when the latest call, and all before, have returned
}

// drain begins: every conversation is told goodbye.
func (r *run) drain() {
	r.enter(Draining)
	r.log.Info(lineDraining)
	err := r.call(r.patience(callTimeout), r.dp.Drain)
	if r.mute = err != nil; err != nil && err != errBrokenOff {
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
	if p != Done {
		r.log.Info(linePhase, "phase", p.String(), "deadline_in", time.Until(r.graceEnds()).Round(time.Millisecond))
	}
	if r.watch.Phase != nil {
		r.watch.Phase(p)
	}
}

// note keeps a fault for the report: each once, and not without end, because the
// report has to fit into a termination message.
func (r *run) note(fault string) {
	if len(r.report.Faults) < faultsAtMost && !slices.Contains(r.report.Faults, fault) {
		r.report.Faults = append(r.report.Faults, fault)
	}
}
