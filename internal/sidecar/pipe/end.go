package pipe

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
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
	unsent request // the request that the reply answers if none is queued
}

// claimLocked decides how the connection ends, for the caller to carry out. It returns nil if that has been decided.
func (c *conn) claimLocked(e *ending) *claim {
	if c.end.phase >= replying {
		return nil
	}
	c.end.by = e
	if e.reply == nil || c.response.begun || c.uploads && c.queue.len() == 0 && c.end.refusal == nil { // or has ended
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

// endBy ends the connection as e says.
func (c *conn) endBy(e *ending) {
	c.mu.Lock()
	one := c.claimLocked(e)
	c.mu.Unlock()
	c.carryOut(one, 0)
}

// carryOut sends the reply, logs the requests and ends the connection. It does nothing for a nil claim. limit bounds
// the write of the reply; 0 for no limit.
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
		if one.isApps() && !unanswered[i].quiet && !c.isIgnored() {
			c.p.failed.Add(1)
			c.p.changed()
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
	if c.isReset() {
		c.sendReset()
	} else {
		_ = c.client.CloseWrite()
		linger()
	}
	c.mu.Lock()
	c.recountLocked()
	c.mu.Unlock()
}

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

// sendReset ends a body that only the connection's end can end: after a FIN the truncated body would look complete. It
// is sent when the client's kernel has acknowledged all data; up waits for that.
func (c *conn) sendReset() {
	_ = c.client.SetLinger(0)
	c.shutApp()
	_ = c.client.SetDeadline(time.Now())
}

// abort ends the connection at once, as the end of the process would.
func (c *conn) abort() {
	c.mu.Lock()
	isStream := !c.end.done() && c.mode == opaque && c.app != nil
	c.end.advance(ended)
	c.end.resets = c.end.resets || isStream || c.response.begun && c.response.untilClose
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

// lastWord is the end of a conversation that has to reach a boundary of its protocol first: a WebSocket the end of a
// message, an event stream the end of an event, gRPC over HTTP/2 the end of a message.
type lastWord struct {
	was     []drain.Conversation // when it was requested; for the report
	ending  string               // how we have ended it; "" if the client has lost nothing
	early   bool                 // requested before the last call
	done    chan struct{}        // closed when the conversation has ended
	hasDone bool                 // guarded by the connection's mu
}

// endsAtBoundaryLocked reports whether the conversation consists of parts between which it can end.
func (c *conn) endsAtBoundaryLocked() bool {
	return !c.end.done() && (c.mode == modeWS || c.db.isBusyLocked() ||
		c.response.begun && c.response.content != earlyend.Unknown)
}

// endsEarlyLocked reports whether the conversation ends when the drain closes idle connections, as configured.
func (c *conn) endsEarlyLocked() bool {
	switch {
	case !c.p.closing.holds() || c.end.done():
		return false
	case c.mode == modeWS:
		return c.p.cfg.WebSockets == CloseEarly
	case c.mode == modeH2:
		return c.p.cfg.EventStreams == CloseEarly && slices.ContainsFunc(c.h2.streams, (*stream).isSubscription)
	}
	return c.p.cfg.EventStreams == CloseEarly &&
		(c.endsAtBoundaryLocked() && c.response.reconnects || c.pollLocked() != nil)
}

// requestLastWord ends the conversation at its next boundary, or now if it is at one. If early is true, it ends only
// conversations whose client loses nothing. It returns nil if there is nothing to wait for.
func (c *conn) requestLastWord(early bool) *lastWord {
	if early && c.endPoll() {
		return nil
	}
	c.mu.Lock()
	isH2 := c.mode == modeH2
	if !c.endsAtBoundaryLocked() {
		c.mu.Unlock()
		if isH2 && early {
			c.lastWordRequested.Store(true)
			c.h2.finishIfDrained()
		}
		return nil
	}
	if c.end.word == nil {
		c.end.word = &lastWord{done: make(chan struct{})}
	}
	w := c.end.word
	w.was, w.early = c.describeLocked(), early
	c.mu.Unlock()
	c.lastWordRequested.Store(true)
	c.tryLastWord()
	return w
}

// tryLastWord sends the last word if it has been requested and this is a boundary. It is called after each release of
// wmu: a request made meanwhile could not take it.
func (c *conn) tryLastWord() {
	if c.lastWordRequested.Load() && c.wmu.TryLock() {
		c.sendLastWord(false)
		c.wmu.Unlock()
	}
}

// sendLastWord sends it at a boundary; with force, also between frames of a fragmented message. wmu is held.
func (c *conn) sendLastWord(force bool) {
	c.mu.Lock()
	isWS, isDatabase := c.ws != nil, c.db != nil
	c.mu.Unlock()
	switch {
	case isWS:
		c.ws.sendClose(force)
		return
	case isDatabase:
		c.db.endBusy()
		return
	}
	if !c.streaming {
		return
	}
	c.down.body.SpreadRetries(time.Duration(c.p.retries.Load()))
	end, ok := c.down.body.End(accesslog.MessageLastCall)
	if !ok {
		return
	}
	c.mu.Lock()
	switch early := c.end.word == nil || c.end.word.early; {
	case c.end.done():
		c.mu.Unlock()
		return
	case early && end.Name != "": // its client would lose something
		c.lastWordRequested.Store(false)
		c.mu.Unlock()
		return
	}
	c.end.phase, c.end.by = ended, &endLastCall
	resets := c.response.untilClose && !end.Proper
	c.end.resets = resets
	if c.end.word != nil {
		c.end.word.ending = end.Name
	}
	c.mu.Unlock()
	if len(end.Last) > 0 {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.client.Send(end.Last, !resets) // bytes that are held back go with a FIN, not with a reset
	}
	c.carryOut(&claim{ending: &endLastCall}, 0)
}

// logLastWord logs the requests of a conversation that has had its last word, and counts it as gone.
func (u *up) logLastWord() {
	c := u.c
	c.mu.Lock()
	unanswered := c.queue.take()
	c.recountLocked()
	c.mu.Unlock()
	for i := range unanswered {
		c.finish(&unanswered[i], unanswered[i].status, endLastCall.within)
	}
}

// settleLocked notifies the goroutine that waits for the last word.
func (c *conn) settleLocked() {
	if c.h2 != nil && c.end.done() {
		c.h2.forgetLocked()
	}
	w := c.end.word
	if w == nil || w.hasDone {
		return
	}
	// The app, which gets its client's close frame, may end the WebSocket before we do.
	if w.ending == "" && c.ws != nil && c.ws.closeSent.Load() {
		w.ending = c.ws.endingName()
	}
	if w.ending == "" && c.db.isBusyLocked() {
		w.ending = drain.EndingFIN
	}
	w.hasDone = true
	close(w.done)
}

// hurryLastWord ends the waits for either side.
func (c *conn) hurryLastWord() {
	soon := time.Now().Add(stuckTime / 2)
	_ = c.client.SetWriteDeadline(soon)
	if c.h2 != nil {
		c.h2.hurryLastMessages()
		return
	}
	if c.ws == nil {
		return
	}
	if c.wmu.TryLock() {
		c.sendLastWord(true)
		c.wmu.Unlock()
	}
	_ = c.app.SetWriteDeadline(soon)
	_ = c.client.SetReadDeadline(time.Now()) // up ends it
}

// giveUpLastWord ends the conversation where it is.
func (c *conn) giveUpLastWord() {
	c.mu.Lock()
	one := c.claimLocked(&endLastCallSilent)
	if one != nil {
		if c.end.word.ending = drain.EndingTruncated; c.ws != nil {
			c.end.word.ending = c.ws.endingName()
		}
	}
	c.mu.Unlock()
	c.carryOut(one, 0)
}

// sendClose sends a close frame between messages, with force also between frames (RFC 6455, 5.4). wmu is held.
func (w *webSocket) sendClose(force bool) {
	c := w.c
	if w.closeSent.Load() || c.hasEnded() || !w.down.BetweenMessages() && !(force && w.down.BetweenFrames()) {
		return
	}
	_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
	w.closeSent.Store(true)
	if err := c.client.Send(ws.AppendClose(nil, c.p.cfg.WebSocketCode, wsReason, false), false); err != nil {
		_ = c.client.SetReadDeadline(time.Now())
		return
	}
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime)) // for its close frame; then up ends the connection
}

// endWebSocket ends the connection after the client has answered our close frame, or has not in time. up calls it.
func (u *up) endWebSocket() {
	c := u.c
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		return
	}
	c.end.phase, c.end.by = ended, &endLastCall
	if c.end.word != nil {
		c.end.word.ending = c.ws.endingName()
	}
	c.mu.Unlock()
	u.state = upDiscard
	if c.ws.up.BetweenFrames() {
		_ = c.app.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.app.Send(ws.AppendClose(nil, c.p.cfg.WebSocketCode, wsReason, true), false)
	}
	// Read on: the app may still write, and a reset would discard its unread bytes.
	_ = c.app.CloseWrite()
	_ = c.app.SetReadDeadline(time.Now().Add(lingerTime))
	_ = c.client.CloseWrite()
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime))
	u.logLastWord()
}

// endingName is how the report describes the end.
func (w *webSocket) endingName() string {
	if w.closeSent.Load() {
		return "close " + strconv.Itoa(w.c.p.cfg.WebSocketCode)
	}
	return drain.EndingTruncated
}
