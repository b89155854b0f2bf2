package pipe

import (
	"runtime"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
	"github.com/lastcall-dev/lastcall/internal/wire/tlshello"
)

// handshakeMemory is the memory of crypto/tls and its stack during a handshake, without the client's bytes, in bytes.
const handshakeMemory = 24 << 10

// account notifies the budget of the connection's memory while up waits. It returns false if the connection has to end.
func (u *up) account() bool {
	held := 0
	if u.buf != nil {
		held = len(u.buf.B)
	}
	if u.c.in.tls != nil {
		held += u.c.client.Held()
	}
	return u.hold(held)
}

// holdBlock is account for a header block that is about to grow.
func (u *up) holdBlock(bytes int) bool {
	u.blockHeld, u.hasStreams = bytes, len(u.c.h2.streams) > 0
	return u.hold(len(u.buf.B))
}

// hold is account for a number of bytes.
func (u *up) hold(held int) bool {
	c := u.c
	held += u.blockHeld
	if held == c.share.Held() && !c.share.IsEvicted() {
		return true
	}
	in := budget.Served
	switch u.mode {
	case undecided, modeHTTP1:
		if !u.paused && !u.within {
			in = budget.Unfinished(held)
		}
	case modeH2:
		if in = budget.Unfinished(held); u.hasStreams {
			in = budget.AmongOthers
		}
	}
	return c.p.budget.Hold(&c.share, held, in)
}

// holdsNothing ends the accounting: its request, if any, is complete.
func (c *conn) holdsNothing() {
	if c.share.Held() > 0 || c.share.IsEvicted() {
		_ = c.p.budget.Hold(&c.share, 0, budget.Served)
	}
}

// endUnfinished ends a connection for the memory's sake.
func (u *up) endUnfinished() {
	c := u.c
	isHello := u.mode == undecided && u.buf != nil && u.buf.R < u.buf.W && u.buf.Bytes()[0] == tlshello.RecordType
	isLarge := c.share.Held() > 0 && u.buf != nil && u.buf.W-u.buf.R > smallHead
	if u.buf != nil {
		u.buf.R = u.buf.W
	}
	u.clearDeadline()
	switch {
	case u.mode == modeH2:
		c.countEvicted(counters.EvictedHeaderBlock)
		u.discard()
		u.dropBlock()
		r := accesslog.Reply{Status: 431, Body: "the header block is not complete, and memory is used up"}
		c.h2.endFor(cause{onRefused, &r, accesslog.InvalidHTTP2}, http2.EnhanceYourCalm)
	case isHello:
		c.countEvicted(counters.EvictedHello)
		u.discard()
		c.endBy(onClientGone)
	case isLarge:
		c.countEvicted(counters.EvictedHead)
		u.endRefused(&replyTooLarge, accesslog.HeadersTooLarge)
	default:
		c.countEvicted(counters.EvictedHead)
		u.endRefused(&replyTimeout, accesslog.HeadTimeout)
	}
}

// smallHead is the size from which on a head is too large for the budget, rather than too slow, bytes.
const smallHead = 8 << 10

func (c *conn) countEvicted(what counters.Evicted) {
	c.evicted.Store(true)
	c.in.stats.Evicted[what].Add(1)
	c.p.warn("the memory for requests that are not complete, or for connections, is used up; ending the oldest of them",
		"listener", c.in.Listen, "from", c.client.RemoteAddr().String(), "what", what.String(),
		"held_bytes", c.p.budget.Held(), "limit_bytes", c.p.budget.Limit(),
		"connections", c.p.open.Load(), "connection_limit", c.p.mostConnections)
}

// makeRoom ends a connection for a new one if the memory has no room for more: of the unfinished the oldest, or one
// that has never had a request, or has been idle for long. It returns false if there is none. The accept loop, which
// calls it, never waits for a client, nor for the clock: those that are being ended need a processor, which it yields.
func (p *Pipe) makeRoom(client *tcp.Socket) bool {
	crowd, most := p.mostConnections+p.mostConnections/4, p.mostConnections+p.mostConnections/2
	if p.existing.Load() >= crowd {
		p.hurryOldest()
	}
	for try := 0; try < budget.Yields && p.existing.Load() >= crowd; try++ {
		runtime.Gosched()
	}
	switch existing := p.existing.Load(); {
	case existing >= most:
		return false
	case existing-p.hurried.Load() >= crowd: // those that are ended have not left: something holds them up
		return p.hasFew(client)
	}
	for try := range budget.Yields / 5 {
		leaving, _ := p.budget.Leaving()
		open := p.open.Load() - leaving
		for _, l := range p.listeners { // without those beyond the limit, each until its request has been refused
			open -= l.stats.OverLimit.Load()
		}
		switch {
		case open < p.mostConnections:
			return true
		case open < p.mostConnections+p.mostConnections/8 && p.budget.EvictOldest(): // its request may still be in time
			return true
		case try == 0 && (p.endOldestIdle() || open < crowd && p.hasFew(client)):
			return true
		}
		runtime.Gosched()
	}
	return false
}

// hurryOldest has the oldest connections leave that have sent their FIN and wait for the client's, until there is room.
func (p *Pipe) hurryOldest() {
	p.idlest.Lock()
	defer p.idlest.Unlock()
	if time.Since(p.idlest.hurried) < listPause {
		return
	}
	p.idlest.hurried = time.Now()
	for _, c := range slices.Backward(p.all()) {
		c.mu.Lock()
		if c.lingers && c.isHurried() {
			c.hurryLocked()
		}
		c.mu.Unlock()
	}
}

func (c *conn) hurryLocked() {
	if !c.hurried && c.end.phase != closed {
		c.hurried = true
		c.p.hurried.Add(1)
	}
	_ = c.client.SetReadDeadline(time.Now())
}

// hasFew reports whether the client's address has less than an eighth of the connections: others that are busy with all
// of them do not shut it out.
func (p *Pipe) hasFew(client *tcp.Socket) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := int64(0)
	for e := p.conns.Front(); e != nil; e = e.Next() {
		if e.Value.(*conn).client.Peer().Addr() == client.Peer().Addr() {
			n++
		}
	}
	return n < p.mostConnections/8
}

// isHurried reports whether the connection, which has sent its FIN, should not wait for the client's: there is no room
// for it. One that was ended for the memory's sake leaves earlier.
func (c *conn) isHurried() bool {
	room := c.p.mostConnections
	if c.evicted.Load() {
		room /= 4
	}
	return c.hurried || c.p.existing.Load()-c.p.hurried.Load() > room
}

type idleConn struct {
	c     *conn
	since time.Time
}

// endOldestIdle ends the connection that has been idle for the longest time. Only the accept loops call it: a list is
// made when the last one is used up.
func (p *Pipe) endOldestIdle() bool {
	p.idlest.Lock()
	defer p.idlest.Unlock()
	for round := range 2 {
		for len(p.idlest.list) > 0 {
			next := p.idlest.list[0]
			p.idlest.list = p.idlest.list[1:]
			if next.c.endIfIdleSince(next.since) {
				return true
			}
		}
		if round == 0 && time.Since(p.idlest.listed) > listPause {
			p.idlest.list, p.idlest.listed = p.idle(), time.Now()
		}
	}
	return false
}

const listPause = 20 * time.Millisecond

// idle lists the idle connections, those first that have been idle for the longest time.
func (p *Pipe) idle() (list []idleConn) {
	for _, c := range p.all() {
		c.mu.Lock()
		since, pause := c.idleSince, keptIdle
		isIdle := c.isIdleLocked() && c.db == nil // whose client would have to log in again
		if c.mode == undecided {
			pause = silentIdle
		}
		c.mu.Unlock()
		if isIdle && time.Since(since) > pause {
			list = append(list, idleConn{c, since})
		}
	}
	slices.SortFunc(list, func(a, b idleConn) int { return a.since.Compare(b.since) })
	return list
}

// keptIdle is how long a connection that has had a request may pause before it can be ended for another.
const keptIdle = 5 * time.Second

// silentIdle is how long a new connection may be silent before it can be ended for another. Without it, the connection
// of a client whose first request is on its way would be ended while all others are busy.
const silentIdle = time.Second

// endIfIdleSince ends the connection unless it has been used since then.
func (c *conn) endIfIdleSince(since time.Time) bool {
	c.mu.Lock()
	isSame := c.idleSince.Equal(since) && !c.end.done()
	c.mu.Unlock()
	if !isSame || !c.claimIfIdle(0) {
		return false
	}
	c.countEvicted(counters.EvictedIdle)
	c.p.start(func() { // it may have to wait for a write to the client
		c.sendIdleEnd()
		c.linger()
	})
	return true
}
