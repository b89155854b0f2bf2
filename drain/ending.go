package drain

import (
	"context"
	"time"
)

// end turns the reason why a wait was broken off into the end of the data
// plane. reached is the deadline here.
func (r *run) end(why reason) {
	switch why {
	case exited:
		r.log.Warn(lineDiedEarly)
		r.report.Verdict = Crashed
	case told:
		if r.quit && !r.appEnded {
			r.log.Info(lineQuit)
		}
		r.kill(r.atOnce())
	default: // the deadline, or hurried
		r.lastCall()
	}
}

// lastCall ends what is still open, as politely as its protocol allows.
func (r *run) lastCall() {
	r.enter(LastCall)
	r.log.Warn(lineLastCall, "busy", r.activity.Busy, "known", r.activity.Known)
	r.ending = true

	// Half of what is left is for the endings, a quarter for a data plane that
	// is slow to answer, the rest for what was written to reach its peers.
	// More than the margin is never taken: with ExitAt there may be minutes left.
	left := min(max(0, time.Until(r.killBy())), r.cfg.margin())
	open, err := callFor(r, time.Now().Add(left*3/4), func(ctx context.Context) ([]Conversation, error) {
		return r.dp.LastCall(ctx, left/2)
	})
	r.report.Open = append(r.report.Open, open...) // a hook's may have been before
	verdict := Clean
	if len(r.report.Open) > 0 {
		verdict = Cut
	}
	if why, over := r.told(); over {
		if r.end(why); why == told && verdict == Cut {
			r.report.Verdict = Cut // what was cut already stays so
		}
		return
	}
	if err != nil {
		r.faultf("last call: %v", err)
		verdict = Cut // it cannot say that it was not
	}

	// Only a hook has said that we go: its container is killed in a moment, and
	// what was open with it, but that need not be the end of the pod.
	if !r.terminating {
		if !r.drained() {
			return
		}
		if r.reopened { // what has come since has its last call, too
			r.reopened = false
			r.lastCall()
			return
		}
	}
	r.finish(verdict)
}

// reopen accepts connections again after a last call that an app's hook alone has
// led to: if its container is merely restarted, the pod stays ready. Responses still
// say goodbye. SIGTERM makes it needless.
func (r *run) reopen() {
	r.ending, r.reopening = false, true
	defer func() { r.reopening = false }()
	for _, step := range []struct {
		what   string
		atMost time.Duration
		f      func(context.Context) error
	}{
		{"reopen the listeners", resumeTimeout, r.dp.Resume},
		{"drain again", callTimeout, r.dp.Drain},
	} {
		if _, over := r.told(); over || r.terminating {
			return
		}
		r.reopened = true
		if err := r.call(time.Now().Add(step.atMost), step.f); err != nil && err != errBrokenOff && !r.terminating {
			r.faultf("%s: %v", step.what, err)
		}
	}
}

// finish closes the data plane in an orderly way within what is left of the
// grace period, and kills it when that does not do.
func (r *run) finish(v Verdict) {
	err := r.call(r.killBy(), r.dp.Close)
	switch {
	case err == nil || r.hasExited():
	case r.quit || r.ctx.Err() != nil:
		if v == Clean {
			v = r.atOnce()
		}
		r.killDataPlane()
	default:
		r.faultf(faultClose, err)
		r.log.Warn(lineCloseFailed)
		r.killDataPlane()
	}
	r.report.Verdict = v
}

// atOnce is the verdict of an end without a drain.
func (r *run) atOnce() Verdict {
	if r.appEnded {
		return Exited
	}
	return Quit
}

func (r *run) kill(v Verdict) {
	r.killDataPlane()
	r.report.Verdict = v
}
