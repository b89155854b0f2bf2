package pipe

import (
	"time"
)

// watchTimeouts ends connections that exceed a timeout, until the pipe ends. Requests do not pay for it: the
// connections are looked at when the first can be due, and at most sweeps times within the shortest timeout.
func (p *Pipe) watchTimeouts() {
	shortest := time.Duration(0)
	for _, limit := range []time.Duration{p.cfg.IdleTimeout, p.cfg.ResponseTimeout} {
		if limit > 0 && (shortest == 0 || limit < shortest) {
			shortest = limit
		}
	}
	if shortest == 0 {
		return
	}
	timer := time.NewTimer(shortest)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return
		}
		next := shortest
		for _, c := range p.all() {
			next = min(next, c.endOverdue())
		}
		timer.Reset(max(next, shortest/sweeps))
	}
}

// sweeps is the precision of a timeout: a sixteenth.
const sweeps = 16
