package pipe

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/spread"
)

// Drain makes each response from now on the last one of its connection.
func (p *Pipe) Drain(context.Context) error {
	p.draining.begin()
	p.changed()
	for _, c := range p.all() {
		c.continueClosing()
	}
	return nil
}

// Resume cancels the drain: it serves as before, and listens again.
func (p *Pipe) Resume(context.Context) error {
	p.draining.end()
	p.closing.end()
	p.stopTimers()
	for _, c := range p.all() {
		c.lastWordRequested.Store(false)
		c.turns.set(&c.turns.follows, false)
	}
	p.stops.Store(false)
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Resume())
	}
	return errors.Join(errs...)
}

// Activity is always known and up to date.
func (p *Pipe) Activity(context.Context) (drain.Activity, error) {
	var raced uint64
	for _, l := range p.listeners {
		raced += l.stats.Raced.Load()
	}
	return drain.Activity{
		Known:       true,
		Connections: int(p.open.Load()),
		Busy:        int(p.busy.Load()),
		Arrivals:    p.arrivals.Load(),
		Opaque:      int(p.opaque.Load()),
		OpaqueEnds: drain.OpaqueEnds{Ended: p.opaqueEnds.ended.Load(), Answered: p.opaqueEnds.answered.Load(),
			Dropped: p.opaqueEnds.dropped.Load()},
		Raced:  raced,
		Failed: p.failed.Load(),
	}, nil
}

// Changes signals each change after Drain.
func (p *Pipe) Changes() <-chan struct{} { return p.changes }

func (p *Pipe) changed() {
	if p.draining.holds() {
		select {
		case p.changes <- struct{}{}:
		default:
		}
	}
}

// CloseIdle ends each connection once it has been idle for idleFor, and those that become idle from now on at once.
func (p *Pipe) CloseIdle(_ context.Context, idleFor time.Duration) error {
	p.closing.begin()
	p.idleGrace.Store(max(p.idleGrace.Load(), int64(idleFor)))
	p.stopTimers()
	var lingering []*conn
	for _, c := range p.all() {
		if c.claimIfIdle(idleFor) {
			c.sendIdleEnd()
			lingering = append(lingering, c)
		} else {
			p.endLater(c, idleFor, unreadTime)
			c.hurryHead()
			c.followSilence()
		}
	}
	for _, c := range lingering { // only now: the others wait for their FIN
		c.linger()
	}
	p.endEarly()
	return nil
}

// endLater ends a connection once it has been idle for idleFor. If there is something unread, which may be a request,
// it looks again after a pause. A busy connection ends with its last response.
func (p *Pipe) endLater(c *conn, idleFor, pause time.Duration) {
	c.mu.Lock()
	left, isIdle := idleFor-time.Since(c.idleSince), c.isIdleLocked()
	c.mu.Unlock()
	if !isIdle {
		return
	}
	p.after(max(left, pause), func() {
		if p.closing.holds() && !c.endIfIdle(idleFor) {
			p.endLater(c, idleFor, min(2*pause, time.Second))
		}
	})
}

// endEarly requests, one after another, the last word of the conversations that are configured to end early.
func (p *Pipe) endEarly() {
	found := slices.DeleteFunc(p.busiest(), func(c *conn) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.endsEarlyLocked()
	})
	over := p.cfg.earlySpread(len(found))
	p.retries.Store(int64(spread.Retries(len(found), over)))
	for i, c := range found {
		p.after(spread.At(i, len(found), over), func() { c.requestLastWord(true) })
	}
}

// after calls f after d, unless stopTimers is called first.
func (p *Pipe) after(d time.Duration, f func()) {
	set := p.timersStopped.Load()
	time.AfterFunc(d, func() {
		if p.timersStopped.Load() == set {
			f()
		}
	})
}

func (p *Pipe) stopTimers() { p.timersStopped.Add(1) }

// StopAccepting accepts the connections in the listeners' queues and closes the listeners, even if ctx ends first.
func (p *Pipe) StopAccepting(ctx context.Context) error {
	p.stops.Store(true)
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Stop(ctx))
	}
	return errors.Join(errs...)
}

// Open lists the busy connections.
func (p *Pipe) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	var out []drain.Conversation
	for _, c := range p.busiest() {
		c.mu.Lock()
		out = append(out, c.describeLocked()...)
		c.mu.Unlock()
		if len(out) >= most {
			return out[:most], nil
		}
	}
	return out, nil
}

// busiest returns the busy connections, the oldest conversation first.
func (p *Pipe) busiest() []*conn {
	var out []*conn
	ages := make(map[*conn]drain.Millis)
	for _, c := range p.all() {
		c.mu.Lock()
		was := c.describeLocked()
		c.mu.Unlock()
		if len(was) > 0 {
			out, ages[c] = append(out, c), was[0].Age
		}
	}
	slices.SortStableFunc(out, func(a, b *conn) int { return cmp.Compare(ages[b], ages[a]) })
	return out
}
