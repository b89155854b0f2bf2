package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// nextLocked returns what is due. A client that has sent no request yet gets the first GOAWAY with the first one, as
// with HTTP/1.1: clients of nghttp2 fail a request of their own if a GOAWAY comes before they have sent it, and those
// that the load balancer still sends here would never be served. wmu and mu are held.
func (h *h2) nextLocked(mayWait bool) http2.Step {
	c := h.c
	hasRequest := !c.end.last() && !h.finishing && h.last > 0 // before the last call
	if c.end.done() || !h.down.Spoke || !h.canSend() || !hasRequest && !h.closing.Begun() {
		return http2.Wait
	}
	m := http2.Moment{Open: h.awaited(), Draining: c.p.draining.lasted(), Closing: c.p.closing.lasted()}
	if m.Open == 0 {
		m.Idle = time.Since(c.idleSince)
		if !h.closing.Begun() && h.closing.Client != http2.Orderly && c.client.Unread() > 0 { // it may be a request
			return http2.Wait
		}
	}
	next := h.closing
	due, again := next.Next(m)
	if due != http2.Wait && !mayWait && c.client.IsFull() {
		due, again = http2.Wait, fullPause
	} else {
		h.closing = next
	}
	if again > 0 {
		h.checkLaterLocked(again)
	}
	return due
}

// fullPause is after how long a client that does not read is looked at again.
const fullPause = 100 * time.Millisecond

// awaited is how many streams the closing waits for. Subscriptions that are to end early, and are between two events,
// end with the connection. mu is held.
func (h *h2) awaited() int {
	n := len(h.streams)
	if !h.c.lastWordRequested.Load() {
		return n
	}
	for _, s := range h.streams {
		if s.isSubscription() && s.events.BetweenEvents() {
			n--
		}
	}
	return n
}

// checkLaterLocked continues the closing after a while, in place of an earlier call's. mu is held.
func (h *h2) checkLaterLocked(after time.Duration) {
	switch {
	case h.c.end.done():
		return
	case h.check != nil:
		h.check.Reset(after)
		return
	}
	h.check = time.AfterFunc(after, func() { h.finishIfDrained(false) })
}

// finishIfDrained sends the GOAWAY that is due, between two frames of the app and after its SETTINGS. It reports
// whether the connection has ended. Only down, which calls it after each write, may wait for the client to read.
func (h *h2) finishIfDrained(mayWait bool) bool {
	c := h.c
	if !c.announcesClose() && !c.p.closing.holds() {
		return false
	}
	h.due.Store(true)
	for h.due.Load() && c.wmu.TryLock() {
		h.due.Store(false)
		ends := h.sendGoAwayDue(mayWait)
		c.wmu.Unlock()
		if ends {
			c.sendEnd()
		}
	}
	return c.hasEnded()
}

// sendGoAwayDue reports whether the connection ends. wmu is held.
func (h *h2) sendGoAwayDue(mayWait bool) (ends bool) {
	c := h.c
	c.mu.Lock()
	var goAway []byte
	due := h.nextLocked(mayWait)
	hasSubscriptions := len(h.streams) > 0
	switch {
	case due == http2.Announce && h.appLast == http2.MaxStreamID: // otherwise the app's GOAWAY had its last stream
		c.in.stats.H2.GoAways.Add(1)
		goAway = http2.AppendAnnouncement(nil)
	case due == http2.End && !hasSubscriptions:
		c.endLocked(onAnswered)
		goAway = h.finalGoAwayLocked(http2.NoError)
	case due == http2.End:
		c.endLocked(onLastCall) // nothing more is forwarded from the client
	}
	c.mu.Unlock()
	switch {
	case due == http2.End && hasSubscriptions:
		h.endStreams(cause{on: onLastCall}, http2.NoError)
	case goAway != nil:
		_ = c.client.Send(goAway, due == http2.End)
	}
	return due == http2.End
}

// continueClosing sends the GOAWAY that is due, if any. HTTP/1 announces the close in its next response.
func (c *conn) continueClosing() {
	if c.modeNow() == modeH2 {
		c.h2.finishIfDrained(false)
	}
}

// sendFinalGoAway sends the final GOAWAY on an idle connection.
func (h *h2) sendFinalGoAway() {
	c := h.c
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if h.down.Spoke && h.canSend() && !c.client.IsFull() {
		c.mu.Lock()
		goAway := h.finalGoAwayLocked(http2.NoError)
		c.mu.Unlock()
		_ = c.client.Send(goAway, true)
	}
}

// finalGoAwayLocked returns the final GOAWAY, which is sent at once. wmu and mu are held.
func (h *h2) finalGoAwayLocked(code http2.ErrCode) []byte {
	h.closing.SentLast()
	h.c.in.stats.H2.GoAways.Add(1)
	return http2.AppendGoAway(nil, min(h.last, h.appLast), code, "") // a stream above it has not been processed
}

// canSend reports whether a frame can be inserted. wmu is held.
func (h *h2) canSend() bool { return h.down.AtBoundary() && !h.torn && !h.closing.Ended() }
