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
	by      *ending          // the row of endings.go that has ended it; nil before
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
	*ending
	reply  []byte  // to be sent; nil if a response has begun, or the ending has none
	unsent request // what the reply answers if no request is queued
}

// claimLocked decides how the connection ends, for the caller to carry out. It returns nil if that has been decided.
func (c *conn) claimLocked(e *ending) *claim {
	if c.end.phase >= replying {
		return nil
	}
	c.end.by = e
	if e.reply == nil || c.response.begun {
		c.end.phase = ended
		c.end.resets = c.response.begun && c.response.untilClose // after a FIN it would look complete
		return &claim{ending: e}
	}
	c.end.phase = replying
	isHead := c.queue.len() > 0 && c.queue.at(0).isHead
	one := &claim{ending: e, reply: replyBytes(e.reply, isHead)}
	if c.queue.len() == 0 {
		one.unsent.entry = c.p.newEntry(c, nil, nil)
	}
	return one
}

// endBy ends the connection as e says. limit bounds the write of a reply; 0 for no limit.
func (c *conn) endBy(e *ending, limit time.Duration) {
	c.mu.Lock()
	one := c.claimLocked(e)
	c.mu.Unlock()
	c.carryOut(one, limit)
}

// carryOut sends the reply, logs the requests and ends the connection. It does nothing for a nil claim.
func (c *conn) carryOut(one *claim, limit time.Duration) {
	if one == nil {
		return
	}
	if one.reply != nil {
		c.sendReply(one.reply, limit)
		c.in.stats.Responded(one.ending.reply.Status)
	}
	c.mu.Lock()
	c.end.advance(ended)
	unanswered := c.queue.take()
	c.mu.Unlock()
	if one.reply != nil {
		if len(unanswered) == 0 {
			unanswered = append(unanswered, one.unsent)
		}
		unanswered[0].status = one.ending.reply.Status
	}
	for i := range unanswered {
		outcome := one.before
		switch {
		case i > 0:
			outcome = one.behind
		case one.reply == nil && unanswered[i].status != 0:
			outcome = one.within
		}
		c.finish(&unanswered[i], unanswered[i].status, outcome)
	}
	c.sendEnd()
}

func (c *conn) sendReply(reply []byte, limit time.Duration) {
	if limit > 0 {
		_ = c.client.SetWriteDeadline(time.Now().Add(limit))
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if !c.hasEnded() {
		_ = c.client.Send(reply, true)
	}
}

// sendEnd sends the FIN or the reset and closes the connection to the app. up reads the client's FIN. Until sendEnd
// returns, the connection counts as open.
func (c *conn) sendEnd() { c.sendEndAnd(c.linger) }

// sendEndAnd is sendEnd with something else to do after a FIN.
func (c *conn) sendEndAnd(linger func()) {
	c.mu.Lock()
	resets := c.end.resets
	c.mu.Unlock()
	if resets {
		c.sendReset()
	} else {
		_ = c.client.CloseWrite()
		linger()
	}
	c.mu.Lock()
	c.recountLocked()
	c.mu.Unlock()
}

// linger closes the connection to the app, and gives the client time to close after our FIN.
func (c *conn) linger() {
	c.shutApp()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lingers = true
	if c.isHurried() {
		c.hurryLocked()
		return
	}
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime))
}

// sendReset ends a body that only the connection's end can end: after a FIN the truncated body would look complete. It
// is our only reset. It is sent when the client's kernel has acknowledged all data; up waits for that.
func (c *conn) sendReset() {
	_ = c.client.SetLinger(0)
	c.shutApp()
	_ = c.client.SetDeadline(time.Now())
}

// abort ends the connection at once, as the end of the process would.
func (c *conn) abort() {
	c.mu.Lock()
	c.end.advance(ended)
	c.end.resets = c.end.resets || c.response.begun && c.response.untilClose
	resets := c.end.resets
	c.recountLocked()
	c.mu.Unlock()
	if resets {
		_ = c.client.SetLinger(0) // also for the kernel, if the process ends first
	} else {
		c.client.Shut()
	}
	_ = c.client.SetDeadline(time.Now())
	c.shutApp()
}

// shutApp ends the connection to the app.
func (c *conn) shutApp() {
	c.mu.Lock()
	app := c.app
	c.mu.Unlock()
	if app != nil {
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
	if c.end.by == &endIdle && c.mode != modeH2 { // HTTP/2 looks for requests itself
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

// finish counts a request that has ended, and logs it; only the first call has an effect.
func (c *conn) finish(q *request, status int, outcome accesslog.Outcome) {
	if q.logged {
		return
	}
	q.logged = true
	if !q.began.IsZero() { // it was queued
		c.in.stats.Durations.Observe(counters.HTTP1, status, time.Since(q.began))
	}
	if status == http.StatusSwitchingProtocols && outcome == accesslog.ClientClosed {
		outcome = accesslog.ViaUpstream // a tunnel ends by either side's close
	}
	c.p.writeEntry(q.entry, status, outcome)
}
