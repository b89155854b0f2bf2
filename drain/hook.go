package drain

import (
	"context"
	"errors"
	"time"
)

// drained waits, after a hook, for SIGTERM. It returns false if the termination has ended otherwise, or was cancelled.
func (r *run) drained() bool {
	r.enter(Drained)
	if r.ending && !r.requested.Container {
		r.reopen() // the hook has returned already
	}
	switch why := r.await(func() time.Time { return r.graceEnds().Add(cancelSlack) }, r.hasTerminate); why {
	case conditionMet:
		return true
	case reached:
		r.resume()
	default:
		r.end(why)
	}
	return false
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
		{"reopen the listeners", resumeTimeout, r.Plane.Resume},
		{"drain again", callTimeout, r.Plane.Drain},
	} {
		if _, over := r.interrupted(); over || r.terminating() {
			return
		}
		r.reopened = true
		err := r.call(time.Now().Add(step.atMost), step.f)
		if err != nil && !errors.Is(err, errInterrupted) && !r.terminating() {
			r.faultf("%s: %v", step.what, err)
		}
	}
}

// resume cancels the drain.
func (r *run) resume() {
	r.Log.Warn(lineCancelled, "after", time.Since(r.start).Round(time.Millisecond))
	r.ending = false
	if _, over := r.interrupted(); !over {
		if !r.terminating() { // if SIGTERM arrives meanwhile, Resume has no more time than any other call
			r.resuming = cancelling
		}
		err := r.call(time.Now().Add(resumeTimeout), r.Plane.Resume)
		if r.resuming = notResuming; err != nil && !errors.Is(err, errInterrupted) {
			r.faultf("resume: %v", err)
		}
	}
	if why, over := r.interrupted(); over {
		r.end(why)
		return
	}
	r.report.Verdict = Resumed
}

// cancelSlack is how long after the grace period a drain is cancelled if no SIGTERM has followed the hook. A native
// sidecar gets its SIGTERM after the exit of the app, which may take the whole grace period and, if the hook has used
// that up, the kubelet's two seconds more; and the kubelet of a busy node is late.
const cancelSlack = 5 * time.Second

// resumeTimeout bounds Resume: an Envoy has to be replaced, which takes seconds with thousands of clusters.
const resumeTimeout = 12 * time.Second

// resumption is why the data plane resumes.
type resumption uint8

const (
	notResuming resumption = iota
	reopening              // the listeners are being reopened, which SIGTERM interrupts
	cancelling             // the drain is being cancelled, and no SIGTERM had come when that began
)
