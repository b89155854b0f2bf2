package pipe

import (
	"time"
)

// watchTimeouts ends what has taken too long, until the pipe ends. Requests know
// nothing of it: the connections are looked at when the first of them can be due,
// and at most sweeps times within the shortest limit.
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

// sweeps is how exact a timeout is: a sixteenth of it.
const sweeps = 16
