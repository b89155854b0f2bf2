package httpdrain

import (
	"context"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// freshTime is how long a new connection may take for its first request, and a begun head for its end, when idle
// connections are closed.
const freshTime = time.Second

// CloseIdle implements drain.DataPlane.
func (p *Plane) CloseIdle(_ context.Context, idleFor time.Duration) error {
	p.beginClosing()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleFor = idleFor
	p.shutHTTP2()
	p.sweepLocked()
	return nil
}

// shutHTTP2 continues the shutdown of all connections of HTTP/2; mu is held.
func (p *Plane) shutHTTP2() {
	for c := range p.conns {
		if c.h2 != nil {
			c.h2.shutLocked()
		}
	}
}

// sweepSoon makes the sweeper run at once; mu is held.
func (p *Plane) sweepSoon() {
	if p.sweeper != nil {
		p.sweeper.Reset(0)
	}
}

// stopSweeper ends the sweeps until the next CloseIdle; mu is held.
func (p *Plane) stopSweeper() {
	if p.sweeper != nil {
		p.sweeper.Stop()
		p.sweeper = nil
	}
}

func (p *Plane) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sweeper != nil {
		p.sweepLocked()
	}
}

// sweepLocked closes the connections that have been idle for long enough, and schedules the next sweep; mu is held.
func (p *Plane) sweepLocked() {
	now := time.Now()
	var next time.Time
	for c := range p.conns {
		isInHead := c.isInHead()
		if c.isBusy() && !isInHead || c.h2 != nil { // HTTP/2 connections end by their GOAWAY
			continue
		}
		ends := c.idleUntil(now)
		if now.Before(ends) {
			if next.IsZero() || ends.Before(next) {
				next = ends
			}
			continue
		}
		if isInHead {
			p.raced++
		}
		p.closeIdle(c)
	}
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(time.Hour, p.sweep)
	}
	if next.IsZero() {
		p.sweeper.Stop()
	} else {
		p.sweeper.Reset(time.Until(next))
	}
}

// idleUntil returns when to close a connection that is not busy. net/http calls a connection idle until it has read the
// whole head of a request. p.mu is held.
func (c *conn) idleUntil(now time.Time) time.Time {
	switch partial := c.partial.Load(); {
	case c.state == http.StateActive: // with a request that does not count
	case partial > 0:
		return time.Unix(0, partial).Add(max(c.p.idleFor, freshTime))
	case listen.HasUnread(c.Conn): // which net/http is about to read
		return now.Add(5 * time.Millisecond)
	case !c.hadRequest:
		return c.began.Add(max(c.p.idleFor, freshTime))
	}
	return c.since.Add(c.p.idleFor)
}

// closeIdle closes an idle connection; mu is held.
func (p *Plane) closeIdle(c *conn) {
	p.gone(c) // no longer counted: a request that arrives now has lost the race
	outer, h := c.outer, c.h2
	p.lingering.Go(func() {
		if h != nil {
			h.goAway(http2.NoError)
		}
		_ = outer.Close() // TLS may have to wait for buffer space for close_notify
	})
}
