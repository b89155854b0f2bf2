package pipe

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// recountLocked decides whether the connection is open and whether it is busy, and updates the pipe's counts.
func (c *conn) recountLocked() {
	if c.paused {
		c.resumeReadingLocked()
	}
	if c.queue.hasRoom() || c.queue.holdsMuch() || c.queue.charged > 0 {
		c.p.budget.Add(c.queue.recharge())
	}
	// A client that has its response is given the time to send the rest of its request.
	readsOn := c.uploads && c.end.phase == ended && c.end.on == onAnswered && !c.end.resets
	open := !c.end.done() || readsOn
	busy := open && !c.isIgnored() && (c.isTunnelLocked() || c.arriving || c.uploads || c.hasRequestLocked())
	isOpaque := busy && c.mode == opaque
	if open == c.counted && busy == c.busy && isOpaque == c.opaque {
		return
	}
	if isOpaque != c.opaque {
		c.opaque = isOpaque
		c.p.opaque.Add(delta(isOpaque))
	}
	if open != c.counted {
		c.counted = open
		c.p.open.Add(delta(open))
		c.in.stats.Open.Add(delta(open))
		if c.overLimit {
			c.in.stats.OverLimit.Add(delta(open))
		}
	}
	if busy != c.busy {
		if c.busy = busy; !busy {
			c.idleSince = time.Now()
		}
		c.p.busy.Add(delta(busy))
		c.in.stats.Busy.Add(delta(busy))
	}
	if !open {
		c.settleLocked()
	}
	c.p.changed()
}

// isIgnored reports whether the connection never counts.
func (c *conn) isIgnored() bool { return slices.Contains(c.in.Ignore, c.origin.Port()) }

func (c *conn) announcesClose() bool { return c.p.draining.holds() || c.restart.leaves.Load() }

// isTunnelLocked reports whether the connection carries no HTTP messages any longer.
func (c *conn) isTunnelLocked() bool { return c.mode == opaque || c.mode == modeWS }

// hasWorkLocked reports whether something is in progress, whether it counts or not.
func (c *conn) hasWorkLocked() bool {
	return c.isTunnelLocked() || c.arriving || c.queue.len() > 0 || c.h2 != nil && len(c.h2.streams) > 0 ||
		c.db.isBusyLocked()
}

// hasRequestLocked reports whether a request that counts is unanswered.
func (c *conn) hasRequestLocked() bool {
	if c.h2 != nil && c.h2.counted > 0 || c.db.isBusyLocked() {
		return true
	}
	for i := range c.queue.len() {
		if !c.queue.at(i).quiet {
			return true
		}
	}
	return false
}

// awaitRequest gives a client whose app is unreachable a moment to send a request, which can be answered. A client that
// waits for the app to speak first would otherwise wait forever.
func (u *up) awaitRequest() {
	u.c.mu.Lock()
	u.c.awaitsFirst, u.timed = true, true
	u.c.mu.Unlock()
	_ = u.c.client.SetReadDeadline(time.Now().Add(firstRequestTime))
}

// endAwaitFirst reports whether the first request was still expected.
func (u *up) endAwaitFirst() bool {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	was := u.c.awaitsFirst
	u.c.awaitsFirst = false
	return was
}

func delta(up bool) int64 {
	if up {
		return 1
	}
	return -1
}

// describeLocked describes the conversations for the report: none if idle, several with HTTP/2.
func (c *conn) describeLocked() []drain.Conversation {
	if !c.busy {
		return nil
	}
	if c.mode == modeH2 && (c.h2.down.Spoke || len(c.h2.streams) > 0) {
		return c.h2.describeStreamsLocked()
	}
	d := drain.Conversation{Peer: c.client.RemoteAddr().String(), Request: string(c.up.upgraded)}
	d.Protocol = cmp.Or(c.protocolLocked(), counters.HTTP1.String())
	since := c.began
	switch {
	case c.client.IsHandshaking():
		d.Protocol = "tls"
	case c.mode == modeDatabase:
		since = c.db.since
	case c.mode == opaque:
		d.Quiet = drain.Millis(c.quiet())
		if d.Protocol == "tls" { // it passes through
			d.Request = c.hello.Load().ServerName
		}
	case c.queue.len() > 0 && !c.isTunnelLocked():
		d.Request, since = string(c.queue.at(0).line), c.queue.at(0).began
	case c.mode == modeHTTP1, c.mode == undecided:
		since = c.idleSince
	}
	d.Age = drain.Millis(time.Since(since))
	return []drain.Conversation{d}
}

// state is a condition of the pipe, with the time since which it holds.
type state struct{ since atomic.Pointer[time.Time] }

// begin does nothing if it holds already.
func (s *state) begin() {
	now := time.Now()
	s.since.CompareAndSwap(nil, &now)
}

func (s *state) end()        { s.since.Store(nil) }
func (s *state) holds() bool { return s.since.Load() != nil }

// lasted is for how long it has held; 0 if it does not.
func (s *state) lasted() time.Duration {
	if since := s.since.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}
