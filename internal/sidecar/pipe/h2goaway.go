package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// meet takes the kind of the client that has sent a request. gRPC's clients are orderly.
func (h *h2) meet(s *stream, of http2.Client) {
	if s.grpc {
		of = http2.Orderly
	}
	h.kind = max(h.kind, of)
}

// goAwayIsDueLocked reports whether the first GOAWAY is due. A client that has sent no request yet gets it with the
// first one, as with HTTP/1.1: clients of nghttp2 fail a request of their own if a GOAWAY comes before they have sent
// it, and those that the load balancer still sends here would never be served. mu is held.
func (c *conn) goAwayIsDueLocked() bool {
	h := c.h2
	if c.end.last() || h.finishing || h.last == 0 {
		return false // the last call has come, or no request yet
	}
	m := http2.Moment{Open: len(h.streams), Draining: c.p.draining.lasted(), Closing: c.p.closing.lasted()}
	if m.Open == 0 {
		m.Idle = time.Since(c.idleSince)
	}
	due, again := h.kind.Due(m)
	if again > 0 {
		c.checkLaterLocked(again)
	}
	return due && (m.Open > 0 || h.kind == http2.Orderly || c.client.Unread() == 0) // unread bytes may be a request
}

// checkLaterLocked continues the shutdown after a while. mu is held.
func (c *conn) checkLaterLocked(after time.Duration) {
	if c.h2.checkScheduled {
		return
	}
	c.h2.checkScheduled = true
	time.AfterFunc(after, func() {
		c.mu.Lock()
		c.h2.checkScheduled = false
		c.mu.Unlock()
		c.finishIfDrained()
	})
}

// sendGoAway sends the first GOAWAY if it is due (RFC 9113, 6.8), between two frames of the app and after its SETTINGS.
func (c *conn) sendGoAway() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.h2.shutdown == http2.NotBegun {
		c.mu.Lock()
		due := c.goAwayIsDueLocked()
		c.mu.Unlock()
		if due {
			c.h2.shutdown = http2.Pending
		}
	}
	c.sendPendingGoAway()
}

func (c *conn) sendPendingGoAway() {
	if c.h2.shutdown == http2.Pending && c.h2.down.Spoke && c.h2.canSend() {
		c.h2.shutdown, c.h2.goAwayAt = http2.Announced, time.Now()
		if c.h2.appLast == http2.MaxStreamID { // otherwise the app has sent a GOAWAY with its last stream
			c.in.stats.H2.GoAways.Add(1)
			_ = c.client.Send(http2.AppendAnnouncement(nil), false)
		}
	}
}

// finishIfDrained continues the shutdown: it sends the first GOAWAY when it is due, and ends the connection when the client
// has had the time to read it and the last stream has ended. It reports whether the connection has ended.
func (c *conn) finishIfDrained() bool {
	if !c.announcesClose() && !c.p.closing.holds() {
		return false
	}
	c.sendGoAway()
	c.wmu.Lock()
	c.mu.Lock()
	done := !c.end.done() && len(c.h2.streams) == 0 && c.h2.shutdown == http2.Announced && c.h2.canSend()
	if done {
		if left := time.Until(c.h2.goAwayAt.Add(http2.AnnounceTime)); left > 0 {
			done = false
			c.checkLaterLocked(left)
		}
	}
	var goodbye []byte
	if done {
		c.end.advance(ended)
		c.end.by = &endDrained
		c.h2.shutdown = http2.Final
		goodbye = c.finalGoAwayLocked(http2.NoError)
	}
	hasEnded := c.end.done()
	c.mu.Unlock()
	if done {
		_ = c.client.Send(goodbye, true)
	}
	c.wmu.Unlock()
	if done {
		c.sendEnd()
	}
	return hasEnded
}

// sendFinalGoAway sends the final GOAWAY on an idle connection.
func (c *conn) sendFinalGoAway() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.h2.down.Spoke && c.h2.canSend() {
		c.h2.shutdown = http2.Final
		c.mu.Lock()
		goodbye := c.finalGoAwayLocked(http2.NoError)
		c.mu.Unlock()
		_ = c.client.Send(goodbye, true)
	}
}

// finalGoAwayLocked returns the final GOAWAY. mu is held.
func (c *conn) finalGoAwayLocked(code http2.ErrCode) []byte {
	c.in.stats.H2.GoAways.Add(1)
	return http2.AppendGoAway(nil, http2.LastStream(c.h2.last, c.h2.appLast), code, "")
}

// canSend reports whether a frame can be inserted. wmu is held.
func (h *h2) canSend() bool { return h.down.AtBoundary() && !h.torn && h.shutdown != http2.Final }
