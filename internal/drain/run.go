package drain

import (
	"context"
	"fmt"
	"log/slog"
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
//  3. QuitNow came (Quit);
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
	case first == QuitNow:
		r.log.Info(lineQuit)
		r.kill(Quit)
	case first == IstioDrain && cfg.Mode != ExitOnZero:
		r.istioDrained()
	case cfg.Mode == Fixed:
		r.fixed()
	case cfg.Mode == IstioExitOnZero:
		r.istioExitOnZero()
	default:
		r.exitOnZero()
	}
	r.enter(Done)
	if r.report.Verdict != Resumed {
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

	terminating bool      // SIGTERM has come: this is final
	hurry       bool      // last call now
	hurriedAt   time.Time // when hurry became true
	quit        bool      // leave at once
	ending      bool      // the last call, or what follows it, is under way

	activity    Activity // the last look; Known is false when it failed
	looked      bool     // there has been a look that succeeded
	firstSeen   uint64   // arrivals at the first look
	lastArrival time.Time
	lastLine    time.Time // of lineStillActive, which is written once a second at most
	lastHolders time.Time // of noteHolders
	namesFailed error     // why open is not asked again
	saidUnknown bool
}

// exitOnZero is lastcall's own way, from first to last.
func (r *run) exitOnZero() {
	r.drain()
	r.log.Info(fmt.Sprintf(lineMinimumDrain, r.cfg.MinimumDrain), "minimum_drain", r.cfg.MinimumDrain, "quiet_time", r.cfg.QuietTime)

	// Endpoints and load balancers learn late: stay until nobody has come for
	// the quiet time, but do not let one that never learns hold the pod.
	if why := r.await(r.drainEnds, nil); why != reached {
		r.end(why)
		return
	}
	if time.Since(r.lastArrival) < r.cfg.QuietTime {
		r.log.Warn(lineCapReached, "after", time.Since(r.start).Round(time.Millisecond))
		r.do("stop accepting", r.dp.StopAccepting)
	}

	for {
		r.enter(Waiting)
		r.log.Info(lineChecking)
		r.do("close idle connections", func(ctx context.Context) error { return r.dp.CloseIdle(ctx, r.cfg.IdleGrace) })
		r.noteHolders()
		if why := r.await(r.waitingEnds, r.free); why != becameFree {
			r.end(why)
			return
		}
		r.log.Info(lineNoneActive)
		if r.terminating {
			break
		}
		// A hook began this. The app's SIGTERM is next, then ours; if neither
		// comes, a single container has been restarted and we go on serving.
		r.enter(Drained)
		if why := r.await(r.graceEnds, r.isTerminating); why == reached {
			r.resume()
			return
		} else if why != becameFree {
			r.end(why)
			return
		}
		if r.free() {
			break
		}
		// Somebody came between the hook's end and the SIGTERM: wait again.
	}

	// The way out: whoever comes now is refused, which is safe to retry; who
	// slipped in before is still served.
	r.do("stop accepting", r.dp.StopAccepting)
	r.do("close idle connections", func(ctx context.Context) error { return r.dp.CloseIdle(ctx, 0) })
	if why := r.await(r.deadline, r.noneBusy); why != becameFree {
		r.end(why)
		return
	}
	r.finish(Clean)
}

// fixed is pilot-agent's default: sleep, then kill.
func (r *run) fixed() {
	r.drain()
	r.log.Info(fmt.Sprintf(lineFixedBegins, r.cfg.TerminationDrain), "termination_drain", r.cfg.TerminationDrain)
	ends := func() time.Time { return r.start.Add(r.cfg.TerminationDrain) }
	if why := r.await(ends, nil); why != reached && why != hurried {
		r.end(why)
		return
	}
	r.log.Info(lineFixedEnds)
	r.abort()
	r.report.Verdict = Ended
}

// istioExitOnZero is pilot-agent's EXIT_ON_ZERO_ACTIVE_CONNECTIONS as it is:
// looks once a second, counts connections, gives up after five failed looks or
// one that knows nothing, and has no deadline.
func (r *run) istioExitOnZero() {
	r.drain()
	r.log.Info(fmt.Sprintf(lineMinimumDrain, r.cfg.MinimumDrain), "minimum_drain", r.cfg.MinimumDrain)
	tick := r.start.Add(r.cfg.MinimumDrain)
	nextTick := func() time.Time { return tick }
	if why := r.await(nextTick, nil); why != reached {
		r.end(why)
		return
	}
	r.enter(Waiting)
	r.log.Info(lineChecking)
	for retries := 0; ; {
		tick = tick.Add(istioPollInterval) // the first look comes one tick after the minimum
		if why := r.await(nextTick, nil); why != reached {
			r.end(why)
			return
		}
		a, err := r.ask()
		switch {
		case err != nil:
			r.fault(err.Error())
			if retries++; retries >= istioMaxRetries {
				r.log.Warn(fmt.Sprintf(lineGaveUp, istioMaxRetries))
				r.abort()
				return
			}
			r.log.Warn(fmt.Sprintf(lineRetrying, retries), "attempt", retries)
		case !a.Known:
			r.log.Info(lineNotAvailable)
			r.abort()
			return
		case a.Connections == 0:
			r.log.Info(lineNoneActive)
			r.abort()
			return
		default:
			retries = 0
			if a.Connections != r.activity.Connections {
				r.log.Info(fmt.Sprintf(lineStillActive, a.Connections), "active", a.Connections)
			}
			r.seen(a)
		}
	}
}

// istioDrained is a native sidecar of Istio's after its preStop: goodbyes for
// ever, and the SIGTERM, which comes when the app is gone, ends it at once.
func (r *run) istioDrained() {
	r.log.Info(lineHandlingDrain)
	r.drain()
	r.enter(Drained)
	if why := r.await(never, r.isTerminating); why != becameFree {
		r.end(why)
		return
	}
	r.log.Info(lineQuit)
	r.abort()
}

// drain begins: every conversation is told goodbye.
func (r *run) drain() {
	r.enter(Draining)
	r.log.Info(lineDraining)
	if err := r.call(r.patience(callTimeout), r.dp.Drain); err != nil {
		r.fault(fmt.Sprintf(lineDrainFailed, err))
	}
}

// abort kills the data plane with whatever is open, as pilot-agent does.
func (r *run) abort() {
	r.log.Warn(lineAborting)
	verdict := Clean
	if r.report.Open, _ = r.open(); len(r.report.Open) > 0 {
		verdict = Cut
	}
	r.kill(verdict)
	r.log.Warn(lineAborted)
}

// end turns the reason why a wait was broken off into the end of the data
// plane. reached is the deadline here.
func (r *run) end(why reason) {
	switch why {
	case exited:
		r.log.Warn(lineDiedEarly)
		r.report.Verdict = Crashed
	case told:
		r.kill(Quit)
	default: // the deadline, or hurried
		r.lastCall()
	}
}

// lastCall ends what is still open, as politely as its protocol allows.
func (r *run) lastCall() {
	r.enter(LastCall)
	r.log.Warn(lineLastCall, "busy", r.activity.Busy, "known", r.activity.Known)
	r.ending = true
	verdict := Clean
	window := r.killBy().Sub(time.Now()) / 2
	var open []Conversation
	err := r.call(r.killBy(), func(ctx context.Context) (err error) {
		open, err = r.dp.LastCall(ctx, window)
		return err
	})
	if err != nil {
		r.fault(fmt.Sprintf("last call: %v", err))
	}
	if r.report.Open = open; len(open) > 0 || err != nil {
		verdict = Cut
	}
	r.finish(verdict)
}

// finish closes the data plane in an orderly way within what is left of the
// grace period, and kills it when that does not do.
func (r *run) finish(v Verdict) {
	r.ending = true
	if err := r.call(r.killBy(), r.dp.Close); err != nil {
		r.fault(fmt.Sprintf("close the data plane: %v", err))
		r.log.Warn(lineCloseFailed)
		r.dp.Kill()
	}
	r.report.Verdict = v
}

func (r *run) kill(v Verdict) {
	r.dp.Kill()
	r.report.Verdict = v
}

// resume takes the drain back.
func (r *run) resume() {
	r.log.Warn(lineTakenBack, "after", time.Since(r.start).Round(time.Millisecond))
	r.do("resume", r.dp.Resume)
	r.report.Verdict = Resumed
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

// fault notes what went wrong without stopping the drain.
func (r *run) fault(what string) {
	r.log.Warn(what)
	r.report.Faults = append(r.report.Faults, what)
}
