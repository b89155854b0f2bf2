package pipe

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// How connections end. Each row shows the bytes that an event sends. Most are functions of this file. Elsewhere: the
// drain (announcesClose, sendGoAway), the last response (responses.go), kill (abort in end.go), HTTP/2's last call
// (h2end.go).
//
//	event               nothing due  no response yet  within a response  parts¹     WebSocket    tunnel      HTTP/2
//	drain               -            close announced  (head was sent)    -          -            -           GOAWAY 2³¹-1
//	idle, or timeout    FIN          -                -                  end²       close²       -           GOAWAY, FIN
//	last response ends  FIN with its last byte        ...                ...        -            -           GOAWAY, FIN
//	last call           FIN          503              FIN; RST⁵          end³       close frame  FIN         per stream⁴
//	response timeout    -            504              FIN; RST⁵          as before  -            -           -
//	invalid request     4xx, 5xx     after those due  FIN                -          -            -           GOAWAY
//	app unreachable     503          503              -                  -          -            FIN         503 each
//	app closes          as the app   as the app⁶      FIN; all⁵          as before  as the app   as the app  as the app
//	app sends nonsense  FIN          502              FIN; RST⁵          as before  -            -           502, RST
//	client closes       FIN          half-close, the response, FIN                  FIN          half-close  half-close
//	client resets       both sockets are closed, the app's with a reset
//	kill                both sockets are closed; within a response RST⁵, a tunnel RST both
//
// A connection to a database (database.go) ends like HTTP/1.1: with the last reply, or while nothing is due. Its client
// gets the protocol's own message before the FIN; at the last call, too, if the server is between two messages.
//
// ¹ A response of parts (event stream, gRPC-Web, Connect, lines), which may end between two of them: lastWord in
// end.go. ² If Endings asks for it, when the drain closes idle connections. ³ As its protocol defines, if it does;
// otherwise like any other response. ⁴ No response yet: 503, or grpc-status 14. Within one: grpc-status 14, the end of
// an event stream, or RST_STREAM. ⁵ If the response ends with the connection: after a FIN its half would look complete.
// ⁶ Or the request is sent again, on another connection to the app: rejoin.go.
//
// A row is the end of the oldest request, a reply if its response has not begun, and how it is logged. With HTTP/2,
// each stream gets it and is logged as before.
type ending struct {
	reply   *accesslog.Reply  // nil: none
	before  accesslog.Outcome // of a request without a response
	within  accesslog.Outcome // of a response that has begun
	behind  accesslog.Outcome // of the HTTP/1 requests behind the oldest, which get no reply
	orderly bool              // an event stream of HTTP/2 ends as its protocol allows
}

// same is an ending that logs all requests alike.
func same(r *accesslog.Reply, outcome accesslog.Outcome) ending {
	return ending{reply: r, before: outcome, within: outcome, behind: outcome}
}

var (
	endIdle            = same(nil, accesslog.ClientClosed)
	endDrained         = same(nil, accesslog.ClientClosed) // after the last response
	endAppIdle         = same(nil, accesslog.ClientClosed) // the app closes while nothing is due
	endClientGone      = same(nil, accesslog.ClientClosed)
	endLastCall        = ending{&replyLastCall, accesslog.LastCall, accesslog.LastCall, accesslog.LastCall, true}
	endLastCallSilent  = same(nil, accesslog.LastCall) // without HTTP there is no reply
	endResponseTimeout = same(&replyResponseTimeout, accesslog.ResponseTimeout)
	endAppClosed       = ending{before: accesslog.Terminated, within: accesslog.Truncated, behind: accesslog.Terminated}
	endAppInvalid      = ending{reply: &replyProtocolError, before: accesslog.ProtocolError,
		within: accesslog.Truncated, behind: accesslog.Terminated}
	endUnreachable = same(&replyConnectFailed, accesslog.ConnectFailed)
	endRestarting  = same(&replyRestarting, accesslog.ConnectFailed)
	endOverLimit   = same(&replyOverflow, accesslog.Overflow)
)

// isApps reports whether the app, which could not be reached or has ended its connection, is why a request fails.
func (e *ending) isApps() bool {
	switch e {
	case &endUnreachable, &endRestarting, &endAppClosed, &endAppInvalid:
		return true
	}
	return false
}

// endAtLastCall ends the connection, with as little loss to its client as is still possible. It returns what it was,
// for the report; nothing if nothing was left to end; or the last word, if the conversation has to reach a boundary
// first.
func (c *conn) endAtLastCall() ([]drain.Conversation, *lastWord) {
	if w := c.requestLastWord(false); w != nil {
		return nil, w
	}
	c.mu.Lock()
	if c.mode == modeH2 && c.end.phase < replying {
		var unspoken []drain.Conversation
		if len(c.h2.streams) == 0 {
			unspoken = c.describeLocked()
		}
		c.mu.Unlock()
		was, word := c.h2.endH2AtLastCall()
		for i := range unspoken {
			unspoken[i].Ending = drain.EndingFIN
		}
		return append(was, unspoken...), word
	}
	was := c.describeLocked()
	e, report := &endLastCall, drain.EndingReply
	switch {
	case len(was) == 0 && c.queue.len() == 0:
		e = &endLastCallSilent
	case c.mode == opaque, c.client.IsHandshaking():
		e, report = &endLastCallSilent, drain.EndingFIN
	case c.response.begun:
		report = drain.EndingTruncated
	}
	one := c.claimLocked(e)
	c.mu.Unlock()
	if one == nil {
		return nil, nil
	}
	if len(was) > 0 {
		was[0].Ending = report
	}
	c.carryOut(one, stuckTime)
	return was, nil
}

// idleLeft is how long the connection has to stay idle until it has been for idleFor, and whether it is idle.
func (c *conn) idleLeft(idleFor time.Duration) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return idleFor - time.Since(c.idleSince), !c.end.done() && !c.hasWorkLocked()
}

// endIfIdle ends the connection if it has been idle for at least idleFor, and reports whether it has.
func (c *conn) endIfIdle(idleFor time.Duration) bool {
	ends := c.sendEndIfIdle(idleFor)
	if ends {
		c.linger()
	}
	return ends
}

// sendEndIfIdle is the part of endIfIdle that the client sees.
func (c *conn) sendEndIfIdle(idleFor time.Duration) bool {
	ends := c.claimIfIdle(idleFor)
	if ends {
		c.sendIdleEnd()
	}
	return ends
}

// claimIfIdle decides that the connection ends because it is idle, for the caller to carry out. It waits for no client.
func (c *conn) claimIfIdle(idleFor time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle := !c.end.done() && !c.hasWorkLocked() && time.Since(c.idleSince) >= idleFor
	if !idle || c.client.Unread() > 0 { // a request has come already: it is served
		return false
	}
	c.end.phase, c.end.by = ended, &endIdle
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

// endOverdue ends the connection if it or its oldest request is beyond its timeout. It returns when to check again.
func (c *conn) endOverdue() (left time.Duration) {
	idleTimeout, responseTimeout := c.p.cfg.IdleTimeout, c.p.cfg.ResponseTimeout
	c.mu.Lock()
	done, works, isDatabase := c.end.done(), c.hasWorkLocked(), c.db != nil
	idle := time.Since(c.idleSince)
	var age time.Duration
	isDue := c.queue.len() > 0 && c.mode == modeHTTP1
	if isDue {
		age = time.Since(c.queue.at(0).began)
	}
	c.mu.Unlock()
	left = max(idleTimeout, responseTimeout)
	switch {
	case done:
	case isDue && responseTimeout > 0:
		if left = responseTimeout - age; left <= 0 {
			c.endSlowResponse()
			left = responseTimeout
		}
	case !works && idleTimeout > 0 && !isDatabase:
		if left = idleTimeout - idle; left <= 0 {
			left = idleTimeout
			if c.endIfIdle(idleTimeout) {
				c.in.stats.IdleEnded.Add(1)
			}
		}
	}
	return left
}

// endSlowResponse answers the oldest request with a 504 if its response has not begun, as Envoy does at its route's
// timeout, and ends the connection: a late response could be mistaken for the next one.
func (c *conn) endSlowResponse() {
	c.mu.Lock()
	var one *claim
	if c.queue.len() > 0 && time.Since(c.queue.at(0).began) >= c.p.cfg.ResponseTimeout {
		one = c.claimLocked(&endResponseTimeout)
	}
	c.mu.Unlock()
	if one != nil {
		c.in.stats.ResponseTimeouts.Add(1)
		c.carryOut(one, stuckTime)
	}
}

// endRefused answers an invalid request, after the responses that are due.
func (u *up) endRefused(r *accesslog.Reply, outcome accesslog.Outcome) {
	c := u.c
	partly := u.state == upBody
	u.state = upDiscard
	if b := u.buf; b != nil {
		b.R = b.W
	}
	u.clearDeadline()
	c.mu.Lock()
	c.end.advance(lastMessage)
	// A request that has been forwarded in part cannot be answered by the app.
	broken := partly && c.queue.len() > 0
	var dropped request
	if broken && c.queue.len() > 1 { // those before it can
		dropped = c.queue.drop()
		broken = false
	}
	waits := c.queue.len() > 0 && !broken
	if waits {
		c.end.refusal = r
		c.arriving = false
		c.recountLocked()
	}
	c.mu.Unlock()
	if !dropped.began.IsZero() {
		c.finish(&dropped, r.Status, outcome)
	}
	if !waits {
		c.in.stats.CountRefused(r.Status)
		e := same(r, outcome)
		c.endBy(&e)
	}
}

// whyUnreachable is the ending of a connection that has none to the app.
func (u *up) whyUnreachable() *ending {
	switch {
	case u.c.overLimit:
		return &endOverLimit
	case u.c.restart.timedOut:
		return &endRestarting
	}
	return &endUnreachable
}

// appEnded handles the end of the app's output, or output that is not understood.
func (d *down) appEnded() {
	c := d.c
	c.mu.Lock()
	done, responding, due := c.end.done(), c.response.begun, c.queue.len() > 0
	answered := c.uploads && !due // before the request had arrived
	c.appHalf = errors.Is(d.err, io.EOF)
	mode, streams := c.mode, 0
	if mode == modeH2 {
		streams = len(c.h2.streams)
	}
	c.mu.Unlock()
	_ = c.app.SetReadDeadline(time.Time{})
	if done || d.leaveToUp() {
		return
	}
	isFIN, isInvalid := errors.Is(d.err, io.EOF), isMalformed(d.err)
	switch {
	case d.err == nil, errors.Is(d.err, net.ErrClosed): // the client has gone
		c.endBy(&endClientGone)
	case mode == modeH2 && isInvalid:
		c.p.warn("app sent invalid HTTP/2; its clients get 502", "app", c.appName(), "error", d.err)
		c.h2.failStreams(&endAppInvalid, http2.NoError)
	case mode == modeH2 && streams > 0:
		c.h2.endAsApp(d.err)
	case mode == modeH2:
		c.h2.sendFinalGoAway()
		c.endBy(&endAppIdle)
	case mode == modeWS:
		c.endAsApp(&endAppIdle, d.err)
	case responding && d.body.Kind == http1.CloseBody && isFIN: // the response is complete
		d.responseEnds(true)
	case responding:
		c.in.stats.Truncated.Add(1)
		if isInvalid {
			c.in.stats.Invalid[invalidity(d.err)].Add(1)
			c.p.warn("invalid response from the app; its client gets a part", "app", c.appName(), "error", d.err)
		}
		c.endAsApp(&endAppClosed, d.err)
	case due && isEnd(d.err) && d.scanned > 0: // without a part of the head, its client would repeat the request
		c.in.stats.Invalid[invalidity(d.err)].Add(1)
		c.p.warn("the app has ended its connection within a response head", "app", c.appName(), "error", d.err)
		_ = c.toClient(d.buf.Bytes(), false)
		c.endAsApp(&endAppClosed, d.err)
	case due && isInvalid:
		c.in.stats.Invalid[invalidity(d.err)].Add(1)
		c.p.warn("invalid response from the app; its client gets 502", "app", c.appName(), "error", d.err)
		c.endBy(&endAppInvalid)
	case due:
		c.endAsApp(&endAppClosed, d.err)
	case answered:
		c.endBy(&endDrained)
	default:
		c.endAsApp(&endAppIdle, d.err)
	}
	c.shutApp()
}

// clientEnded handles the end of the client's output: a half-close for the app if a response is due, else the end.
func (u *up) clientEnded() {
	c := u.c
	c.mu.Lock()
	c.halfClosed, c.uploads = errors.Is(u.err, io.EOF), false
	closing := c.ws != nil && c.ws.closeSent.Load() // a WebSocket that ends by close frames
	due := c.queue.len() > 0 || c.h2 != nil && len(c.h2.streams) > 0 || c.mode == modeDatabase
	unspoken := c.mode == modeH2 && c.app != nil && !c.h2.down.Spoke // the app may serve anything
	due = (due || unspoken) && !c.end.done() && c.halfClosed
	if due && c.arriving && !unspoken { // of an incomplete request nothing more arrives
		c.arriving = false
		c.recountLocked()
	}
	isCut := isBroken(u.err) && !closing
	if isCut { // nothing reaches the client now
		if !c.end.done() {
			c.end.by = &endClientGone
		}
		c.end.advance(ended)
		c.recountLocked()
	}
	c.mu.Unlock()
	switch {
	case c.app == nil:
	case closing:
		u.endWebSocket()
	case due:
		_ = c.app.CloseWrite()
	case isCut: // as the client without a sidecar, which distinguishes a part of an upload from the whole
		_ = c.app.SetLinger(0)
		_ = c.app.SetDeadline(time.Now())
	default:
		c.app.Shut()
	}
	if u.err != nil && errors.Is(u.err, syscall.ECONNRESET) {
		c.in.stats.ClientResets.Add(1)
	}
}

// clientTimedOut handles an expired read deadline. It reports whether to read on.
func (u *up) clientTimedOut() bool {
	c := u.c
	if !errors.Is(u.err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	done, mode := c.end.done(), c.mode
	pause := lingerTime
	if c.end.resets {
		pause = stuckTime
	}
	hurries := c.isHurried()
	c.mu.Unlock()
	switch {
	case done: // the client does not close: leave, unless it is still reading
		left := c.client.Unsent()
		if left == 0 || left == u.unsent || hurries {
			return false
		}
		u.unsent = left
		_ = c.client.SetReadDeadline(time.Now().Add(pause))
		return true
	case mode == modeWS: // the client has not answered our close frame
		u.endWebSocket()
		return true
	case mode == opaque: // the app spoke first
		_ = c.client.SetReadDeadline(time.Time{})
		u.state = upOpaque
		return true
	case u.sniffedEnough():
		return true
	case u.timed && u.state == upH2:
		u.clearDeadline()
		u.state = upDiscard
		c.h2.endInvalidH2(http2.FloodSlow)
		return true
	case u.timed:
		u.clearDeadline()
		if u.endAwaitFirst() {
			c.endBy(&endClientGone)
			return true
		}
		outcome := accesslog.HeadTimeout
		switch {
		case u.state == upBody:
			outcome = accesslog.RequestTimeout
		case c.p.closing.holds() && c.isUnasked(): // as a request that meets the end of its idle connection
			u.state = upDiscard
			c.endBy(&endIdle)
			c.noteRace()
			return true
		}
		u.endRefused(&replyTimeout, outcome)
		return true
	}
	_ = c.client.SetReadDeadline(time.Time{})
	return true
}
