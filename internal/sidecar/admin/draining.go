package admin

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// draining is the state requested by /drain_listeners and /healthcheck/fail.
//
// As in Envoy, neither ends. Of several drains the first one counts, but one that is not graceful always stops the
// listeners.
type draining struct {
	Options

	mu      sync.Mutex // guards the fields below
	failed  bool       // /healthcheck/fail
	drains  bool       // /drain_listeners
	stopped bool       // the listeners are closed
	ctx     context.Context
	cancel  context.CancelFunc // of ctx, which ends what is due later; both nil before the first drain
	due     sync.WaitGroup
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
		d.after(d.DrainTime, d.stopAccepting)
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
	_ = d.Plane.Drain(context.Background())
	if d.ctx == nil {
		d.ctx, d.cancel = context.WithCancel(context.Background())
		d.after(d.IdleAfter, func() { _ = d.Plane.CloseIdle(context.Background(), d.IdleGrace) })
	}
}

// stopAccepting closes the listeners. mu is held.
func (d *draining) stopAccepting() {
	if !d.stopped {
		d.stopped = true
		_ = d.Plane.StopAccepting(context.Background())
	}
}

// after calls f with mu held, unless reset comes before. mu is held.
func (d *draining) after(wait time.Duration, f func()) {
	ctx := d.ctx
	d.due.Go(func() {
		_ = poll.Pause(ctx, wait)
		d.mu.Lock()
		defer d.mu.Unlock()
		if ctx.Err() == nil {
			f()
		}
	})
}

// reset clears everything: the data plane serves as at the start.
func (d *draining) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil {
		d.cancel()
	}
	d.failed, d.drains, d.stopped, d.ctx, d.cancel = false, false, false, nil, nil
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
