package drain

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// end ends the data plane for the reason that ended a wait. reached means the deadline.
func (r *run) end(why reason) {
	switch why {
	case exited:
		r.istio.Warn(lineDiedEarly)
		r.report.Verdict = Crashed
	case stopNow:
		if r.stopped == Quit {
			r.istio.Info(lineQuit)
		}
		r.report.Verdict = r.atOnce()
		r.killDataPlane()
	default: // reached or lastCallNow
		r.lastCall()
	}
}

// lastCall ends the open conversations, each in the way of its protocol.
func (r *run) lastCall() {
	r.enter(LastCall)
	r.log.Warn(lineLastCall, "busy", r.activity.Busy, "known", r.activity.Known)
	r.ending = true

	// Half of the time left is for the endings, a quarter for a data plane that is slow to return, the rest for the last
	// bytes to reach the clients. It is at most the margin: with ExitAt there may be minutes left.
	left := min(max(0, time.Until(r.killBy())), r.cfg.margin())
	open, err := callFor(r, time.Now().Add(left*3/4), func(ctx context.Context) ([]Conversation, error) {
		return r.dp.LastCall(ctx, left/2)
	})
	r.report.Open = append(r.report.Open, open...) // a hook's last call may have been before
	verdict := Clean
	if len(r.report.Open) > 0 {
		verdict = Cut
	}
	if why, over := r.interrupted(); over {
		if r.end(why); why == stopNow && verdict == Cut {
			r.report.Verdict = Cut // a cut remains a cut
		}
		return
	}
	if err != nil {
		r.faultf("last call: %v", err)
		verdict = Cut // or unknown
	}

	// Only a hook has begun this. Its container is killed in a moment, with its open connections, but the pod may remain.
	if !r.terminating() {
		if !r.drained() {
			return
		}
		if r.reopened { // a last call for later connections, too
			r.reopened = false
			r.lastCall()
			return
		}
	}
	r.finish(verdict)
}

// reopen accepts connections again after a last call that only an app's hook has led to: if just that container
// restarts, the pod stays ready. The data plane continues to drain. After SIGTERM reopen does nothing.
func (r *run) reopen() {
	r.ending, r.resuming = false, reopening
	defer func() { r.resuming = notResuming }()
	for _, step := range []struct {
		what   string
		atMost time.Duration
		f      func(context.Context) error
	}{
		{"reopen the listeners", resumeTimeout, r.dp.Resume},
		{"drain again", callTimeout, r.dp.Drain},
	} {
		if _, over := r.interrupted(); over || r.terminating() {
			return
		}
		r.reopened = true
		if err := r.call(time.Now().Add(step.atMost), step.f); err != nil && !errors.Is(err, errInterrupted) && !r.terminating() {
			r.faultf("%s: %v", step.what, err)
		}
	}
}

// finish closes the data plane in an orderly way within the rest of the grace period, and kills it if that fails.
func (r *run) finish(v Verdict) {
	err := r.call(r.killBy(), r.dp.Close)
	switch {
	case err == nil || hasExited(r.dp):
	case r.stopped != "" || r.ctx.Err() != nil:
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

// atOnce is the verdict of an end without a drain: Quit also when ctx has ended.
func (r *run) atOnce() Verdict { return cmp.Or(r.stopped, Quit) }
