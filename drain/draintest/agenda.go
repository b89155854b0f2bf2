package draintest

import (
	"slices"
	"time"
)

// agenda is what is to happen, by time; what is to happen at one moment comes
// in the order in which it was written down.
type agenda []event

type event struct {
	at time.Duration
	do func()
}

func (a *agenda) add(at time.Duration, do func()) {
	i := len(*a)
	for i > 0 && (*a)[i-1].at > at {
		i--
	}
	*a = slices.Insert(*a, i, event{at, do})
}

// ring is the clock's: it runs in the timer's goroutine.
func (p *Plane) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp()
}

// catchUp lets happen what is due. Every method begins with it, so that no call
// sees a state that is older than itself.
func (p *Plane) catchUp() {
	p.settle()
	if now := time.Since(p.start); p.now < now {
		p.now = now
	}
}

// settle works off the agenda up to this moment and sets the clock to the next.
func (p *Plane) settle() {
	now := time.Since(p.start)
	for len(p.agenda) > 0 && p.agenda[0].at <= now {
		e := p.agenda[0]
		p.agenda = p.agenda[1:]
		p.now = max(p.now, e.at)
		e.do()
	}
	if len(p.agenda) > 0 {
		p.clock.Reset(p.agenda[0].at - now)
	}
}

// changed tells who listens, and who waits in Close.
func (p *Plane) changed() {
	close(p.idled)
	p.idled = make(chan struct{})
	if p.said {
		select {
		case p.changes <- struct{}{}:
		default: // there is one already: merged
		}
	}
}

// end is the end of the plane, with everything on it.
func (p *Plane) end(how Way) {
	if p.over {
		return
	}
	p.over = true
	for _, c := range p.clients {
		if c.open {
			c.end(how)
		}
	}
	close(p.exited)
	p.changed()
}
