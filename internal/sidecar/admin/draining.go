package admin

import (
	"net/http"
	"sync"
	"time"
)

// draining is the state requested by /drain_listeners and /healthcheck/fail.
//
// As in Envoy, neither ends. Of several drains the first one counts, but one that is not graceful always stops the
// listeners.
type draining struct {
	plane     Plane
	drainTime time.Duration
	idleAfter time.Duration

	mu      sync.Mutex // guards the fields below
	failed  bool       // /healthcheck/fail
	drains  bool       // /drain_listeners
	stopped bool       // the listeners are closed
	idle    *time.Timer
	stop    *time.Timer
	timers  sync.WaitGroup // one per timer that is set
}

// drain is /drain_listeners.
func (d *draining) drain(graceful, skipExit bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.drains
	d.drains = true
	d.drainPlane()
	switch {
	case skipExit:
	case !graceful:
		d.stopAccepting()
	case first:
		d.stop = d.after(d.drainTime, d.stopAccepting)
	}
}

// fail is /healthcheck/fail: like Envoy, the data plane announces the end of each connection while it still accepts new
// ones.
func (d *draining) fail() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = true
	d.drainPlane()
}

// drainPlane may be called twice: the data plane may have resumed in between. mu is held.
func (d *draining) drainPlane() {
	d.plane.Drain()
	if d.idle == nil {
		d.idle = d.after(d.idleAfter, d.plane.CloseIdle)
	}
}

// stopAccepting closes the listeners. mu is held.
func (d *draining) stopAccepting() {
	if !d.stopped {
		d.stopped = true
		d.plane.StopAccepting()
	}
}

// after calls f with mu held unless the timer is unset before. mu is held.
func (d *draining) after(wait time.Duration, f func()) *time.Timer {
	d.timers.Add(1)
	var t *time.Timer
	t = time.AfterFunc(wait, func() {
		defer d.timers.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		if t == d.idle || t == d.stop {
			f()
		}
	})
	return t
}

// unset stops the timer. mu is held.
func (d *draining) unset(t **time.Timer) {
	if *t != nil && (*t).Stop() {
		d.timers.Done()
	}
	*t = nil
}

// reset clears everything: the data plane serves as at the start.
func (d *draining) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed, d.drains, d.stopped = false, false, false
	d.unset(&d.idle)
	d.unset(&d.stop)
}

// close stops the timers and waits for those that have fired.
func (d *draining) close() {
	d.mu.Lock()
	d.unset(&d.idle)
	d.unset(&d.stop)
	d.mu.Unlock()
	d.timers.Wait()
}

// hasFailed reports whether the health check fails.
func (d *draining) hasFailed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// ready is 200 while the server is live. As in Envoy, only a failed health check changes it, not a drain. Envoy's other
// states precede the serving of the data plane; the API is not available then.
func (s *Server) ready(query) answer {
	if s.draining.hasFailed() {
		return text(http.StatusServiceUnavailable, "DRAINING\n")
	}
	return text(http.StatusOK, "LIVE\n")
}
