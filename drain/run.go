package drain

import (
	"context"
	"log/slog"
	"slices"
	"time"
)

// Watcher is told of the way of a termination as it happens. Its functions are
// called from Run's goroutine and must not block; each may be nil.
type Watcher struct {
	Phase    func(Phase)
	Activity func(Activity)
}

// Run takes a data plane through one termination, from the first signal to its
// end, and reports. It returns when
//
//  1. the data plane has been ended: by its own silence, at the last call, or
//     after the fixed time (Clean, Cut, Ended);
//  2. it ended by itself (Crashed);
//  3. QuitNow came (Quit), or AppEnded (Exited);
//  4. the drain was begun by a Hook and taken back (Resumed): the data plane
//     serves again, and Run may be called again;
//  5. ctx ended: the data plane is killed (Quit).
//
// signals brings what comes after first; it is never closed. Run panics when
// cfg is not valid.
func Run(ctx context.Context, cfg Config, dp DataPlane, first Signal, signals <-chan Signal, log *slog.Logger, watch Watcher) Report {
	if err := cfg.Validate(); err != nil {
		panic("drain: " + err.Error())
	}
	now := time.Now()
	r := &run{
		ctx: ctx, cfg: cfg, dp: dp, signals: signals, log: log, watch: watch,
		start: now, phaseBegan: now, lastArrival: now,
		report: Report{Mode: cfg.Mode.String(), Trigger: first.String(), Began: now},
	}
	r.hear(first)
	switch {
	case first == QuitNow || first == AppEnded:
		r.end(told)
	case cfg.Mode == ExitOnZero:
		r.exitOnZero()
	case first == IstioDrain:
		r.istioDrained()
	case cfg.Mode == Fixed:
		r.fixed()
	case first == Hook || first == AppHook:
		r.istioDrained()
	default:
		r.istioExitOnZero()
	}
	if r.report.Verdict == Resumed {
		r.enter(Serving)
		if r.terminating {
			// SIGTERM came while the drain was being taken back. It has been
			// read from signals, so nobody else will act on it, and nobody
			// else will tell what the hook's last call has cut.
			report := Run(ctx, cfg, dp, Terminate, signals, log, watch)
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
