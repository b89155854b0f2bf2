package pipe

import (
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// phase is how far a connection is from its end. It never goes back.
type phase uint8

const (
	open        phase = iota
	lastMessage       // nothing more is forwarded from the client: the messages due are the last ones
	replying          // a local reply is being sent in place of a response
	ended             // nothing more is sent to the client: the FIN or reset has been sent, or is about to be
	closed            // both sockets are closed
)

// end is how a connection ends. It is guarded by the connection's mu.
type end struct {
	phase   phase
	on      event            // that has ended it
	resets  bool             // with a reset instead of a FIN
	refusal *accesslog.Reply // to be sent after the responses that are due
	raced   bool             // a request has met our FIN
	word    *lastWord        // nil unless one has been requested
}

func (e *end) done() bool { return e.phase >= ended }
func (e *end) last() bool { return e.phase >= lastMessage }

// advance sets the phase, unless it is further already.
func (e *end) advance(to phase) { e.phase = max(e.phase, to) }

// claim is the right to end a connection, which one goroutine gets.
type claim struct {
	ending
	bytes  []byte  // of the reply; nil if the ending has none
	unsent request // the request that the reply answers if none is queued
}

// claimLocked decides how the connection ends, for the caller to carry out. It returns nil if that has been decided.
func (c *conn) claimLocked(why cause) *claim {
	if c.end.phase >= replying {
		return nil
	}
	one := &claim{ending: why.at(c.placeLocked())}
	if one.log == accesslog.Truncated {
		c.in.stats.Truncated.Add(1)
	}
	if one.sends != sendsReply {
		c.endLocked(why.on)
		return one
	}
	c.end.phase, c.end.on = replying, why.on
	one.bytes = replyBytes(one.reply, c.queue.len() > 0 && c.queue.at(0).isHead)
	if c.queue.len() == 0 {
		one.unsent.entry = c.p.newEntry(c, nil, nil)
	}
	return one
}

// endLocked notes the end by an event, for the caller to send. It does nothing if the connection has ended.
func (c *conn) endLocked(on event) {
	if c.end.done() {
		return
	}
	sends := endings[on][c.placeLocked()].sends
	c.end.phase, c.end.on = ended, on
	c.end.resets = sends == sendsReset || sends == sendsAsApp && c.appReset
}

func (c *conn) endBy(on event) { c.endFor(cause{on: on}) }

func (c *conn) endFor(why cause) {
	c.mu.Lock()
	one := c.claimLocked(why)
	c.mu.Unlock()
	c.carryOut(one, 0)
}

// carryOut sends the reply, logs the requests and ends the connection. It does nothing for a nil claim. limit bounds
// the write of the reply; 0 for no limit.
func (c *conn) carryOut(one *claim, limit time.Duration) {
	if one == nil {
		return
	}
	if one.bytes != nil {
		if limit > 0 {
			_ = c.client.SetWriteDeadline(time.Now().Add(limit))
		}
		_ = c.toClient(one.bytes, true)
		c.in.stats.Responded(one.reply.Status)
	}
	c.mu.Lock()
	c.end.advance(ended)
	unanswered := c.queue.take()
	c.mu.Unlock()
	if one.bytes != nil {
		if len(unanswered) == 0 {
			unanswered = append(unanswered, one.unsent)
		}
		unanswered[0].status = one.reply.Status
	}
	for i := range unanswered {
		if one.failed && !unanswered[i].quiet && !c.isIgnored() {
			c.p.failed.Add(1)
			c.p.changed()
		}
	}
	if len(unanswered) > 0 {
		c.finish(one.log, unanswered[:1])
		c.finish(one.behind, unanswered[1:])
	}
	c.sendEnd()
}

// sendEnd sends the FIN or the reset and closes the connection to the app. up reads the client's FIN. Until sendEnd
// returns, the connection counts as open.
func (c *conn) sendEnd() { c.sendEndAnd(c.linger) }

// sendEndAnd is sendEnd with something else to do after a FIN.
func (c *conn) sendEndAnd(linger func()) {
	if c.isReset() {
		// A body that only the connection's end can end: after a FIN the truncated body would look complete. The reset
		// is sent when the client's kernel has acknowledged all data; up waits for that.
		_ = c.client.SetLinger(0)
		c.shutApp()
		_ = c.client.SetDeadline(time.Now())
	} else {
		_ = c.client.CloseWrite()
		linger()
	}
	c.mu.Lock()
	c.recountLocked()
	c.mu.Unlock()
}

// uploadTime is how long a client has for the rest of a request's body that is answered already.
const uploadTime = 30 * time.Second

// linger closes the connection to the app, and gives the client time to close after our FIN. A client within a
// request's body gets the time to send it: a reset would keep it from reading the response (RFC 9112, 9.6).
func (c *conn) linger() {
	c.shutApp()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingers = true
	if c.isHurried() {
		c.hurryLocked()
		return
	}
	wait := lingerTime
	if c.uploads {
		wait = uploadTime
	}
	_ = c.client.SetReadDeadline(time.Now().Add(wait))
}

// abort ends the connection at once, as the end of the process would.
func (c *conn) abort() {
	c.mu.Lock()
	isStream := !c.end.done() && c.mode == opaque && c.app != nil
	c.endLocked(onKill)
	resets := c.end.resets
	c.recountLocked()
	c.mu.Unlock()
	if isStream {
		c.resetBoth()
		return
	}
	if resets {
		_ = c.client.SetLinger(0) // also for the kernel, if the process ends first
	} else {
		c.client.Shut()
	}
	_ = c.client.SetDeadline(time.Now())
	c.shutApp()
}

// shutApp ends the connection to the app, unless it may read the rest of a request.
func (c *conn) shutApp() {
	c.mu.Lock()
	app, reads := c.app, c.appHalf && c.uploads
	c.mu.Unlock()
	switch {
	case app == nil:
	case reads:
		_ = app.SetWriteDeadline(time.Now().Add(uploadTime))
	default:
		app.Shut()
	}
}

func (c *conn) hasEnded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end.done()
}

// noteRace counts a request that met our FIN on an idle connection. Bytes after an announced close are no race.
func (c *conn) noteRace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.on == onIdle && c.mode != modeH2 { // HTTP/2 looks for requests itself
		c.raceLocked()
	}
}

// raceLocked counts each connection once.
func (c *conn) raceLocked() {
	if !c.end.raced {
		c.end.raced = true
		c.in.stats.Raced.Add(1)
		c.p.changed()
	}
}

// finish counts requests that have ended and left the queue, and logs them.
func (c *conn) finish(outcome accesslog.Outcome, all []request) {
	for i := range all {
		q, how := &all[i], outcome
		if !q.began.IsZero() { // it was queued
			c.in.stats.Durations.Observe(counters.HTTP1, q.status, time.Since(q.began))
		}
		if q.status == http.StatusSwitchingProtocols && outcome == accesslog.ClientClosed {
			how = accesslog.ViaUpstream // a tunnel ends by either side's close
		}
		c.p.writeEntry(q.entry, q.status, how)
	}
}

// isIdleLocked reports whether nothing is in progress on a connection that has not ended.
func (c *conn) isIdleLocked() bool { return !c.end.done() && !c.hasWorkLocked() }

// endIfIdle ends the connection if it has been idle for at least idleFor, and reports whether it has.
func (c *conn) endIfIdle(idleFor time.Duration) bool {
	ends := c.claimIfIdle(idleFor)
	if ends {
		c.sendIdleEnd()
		c.linger()
	}
	return ends
}

// claimIfIdle decides that the connection ends because it is idle, for the caller to carry out. It waits for no client.
func (c *conn) claimIfIdle(idleFor time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isIdleLocked() || time.Since(c.idleSince) < idleFor || c.client.Unread() > 0 { // a request, which is served
		return false
	}
	c.endLocked(onIdle)
	c.recountLocked()
	return true
}

// sendIdleEnd carries it out.
func (c *conn) sendIdleEnd() {
	switch c.modeNow() {
	case modeH2:
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime)) // down may be writing to a client that does not read
		c.h2.sendFinalGoAway()
	case modeDatabase:
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		c.wmu.Lock()
		c.db.sayLast()
		c.wmu.Unlock()
	}
	_ = c.client.CloseWrite()
}

// endOverdue ends the connection if it or its oldest request is beyond its timeout. It returns when to check again. A
// request gets a 504 if its response has not begun, as from Envoy at its route's timeout; its connection ends, since a
// late response could be mistaken for the next one.
func (c *conn) endOverdue() (left time.Duration) {
	idleTimeout, responseTimeout := c.p.cfg.IdleTimeout, c.p.cfg.ResponseTimeout
	left = max(idleTimeout, responseTimeout)
	c.mu.Lock()
	isIdle := c.isIdleLocked() && idleTimeout > 0 && c.db == nil
	var one *claim
	switch {
	case isIdle:
		left = idleTimeout - time.Since(c.idleSince)
	case !c.end.done() && c.queue.len() > 0 && c.mode == modeHTTP1 && responseTimeout > 0:
		if left = responseTimeout - time.Since(c.queue.at(0).began); left <= 0 {
			one, left = c.claimLocked(cause{on: onResponseTimeout}), responseTimeout
		}
	}
	c.mu.Unlock()
	if one != nil {
		c.in.stats.ResponseTimeouts.Add(1)
		c.carryOut(one, stuckTime)
	}
	if isIdle && left <= 0 {
		left = idleTimeout
		if c.endIfIdle(idleTimeout) {
			c.in.stats.IdleEnded.Add(1)
		}
	}
	return left
}
