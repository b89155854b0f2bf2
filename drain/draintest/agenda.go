package draintest

import (
	"slices"
	"time"
)

// agenda is the list of future events, by time; those of one instant are in the order in which they were added.
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

// ring is called by the timer, in its goroutine.
func (p *Plane) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.catchUp()
}

// catchUp runs the events that are due. Every method begins with it, so that no call sees an outdated state.
func (p *Plane) catchUp() {
	p.settle()
	if now := time.Since(p.start); p.now < now {
		p.now = now
	}
}

// settle runs the events up to now and sets the clock to the next one.
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

// changed pushes a change, and wakes Close.
func (p *Plane) changed() {
	close(p.idled)
	p.idled = make(chan struct{})
	if p.pushes {
		select {
		case p.changes <- struct{}{}:
		default: // merged with the previous one
		}
	}
}

// end ends the plane and all of its connections.
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
