package pipe

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// endStreams ends every open stream and returns those whose clients lose something. The caller holds wmu, not mu, and
// calls sendEnd.
func (h *h2) endStreams(why cause, code http2.ErrCode) []drain.Conversation {
	c := h.c
	c.mu.Lock()
	var was []drain.Conversation
	if len(h.streams) == 0 {
		if was = c.describeLocked(); len(was) > 0 { // the app has not spoken
			was[0].Ending = drain.EndingFIN
		}
	}
	if why.at(unanswered).failed {
		c.p.failed.Add(uint64(len(h.streams)))
		c.p.changed()
	}
	canSend := h.canSend()
	var out []byte
	if canSend && !h.down.Spoke {
		out = http2.Append(out, http2.Settings, 0, 0, nil) // the first frame of a server (RFC 9113, 3.4)
		h.down.Spoke = true
	}
	for _, s := range h.streams {
		if s.events != nil {
			s.events.SpreadRetries(time.Duration(c.p.retries.Load()))
		}
		if s.status != 0 && !s.serverEnded && why.on != onLastCall {
			c.in.stats.Truncated.Add(1)
		}
		how := drain.EndingTruncated
		if canSend {
			if how, out = h.end(s, out, why.at(s.place())); how == drain.EndingReset || how == drain.EndingErrorEvent {
				c.in.stats.H2.TxResets.Add(1)
			}
		}
		if !s.quiet && how != "" {
			was = append(was, h.describe(s))
			was[len(was)-1].Ending = how
		}
		if s.status == 0 && canSend {
			s.status = why.at(unanswered).reply.Status
			c.in.stats.Responded(s.status)
		}
	}
	h.closeStreamsLocked(why.at(unanswered).log)
	c.endLocked(why.on)
	if canSend {
		out = append(out, h.finalGoAwayLocked(code)...)
	}
	c.mu.Unlock()
	if canSend {
		_ = c.client.Send(out, true)
	}
	return was
}

// end appends the frames that end a stream, and names them; "" if the client loses nothing. mu is held.
func (h *h2) end(s *stream, out []byte, e ending) (string, []byte) {
	const endHeaders = http2.FlagEndHeaders | http2.FlagEndStream
	switch e.sends {
	case sendsTrailers:
		var block []byte
		if s.status == 0 { // a response of trailers alone
			block = append(block, 0x88) // :status 200, of the static table
			block = http2.AppendField(block, "content-type", "application/grpc")
		}
		for _, field := range grpc.Unavailable.With(e.reply.Message()).Trailers() {
			block = http2.AppendField(block, field[0], field[1])
		}
		return e.report, http2.Append(out, http2.Headers, endHeaders, s.id, block)
	case sendsReply:
		status := strconv.Itoa(e.reply.Status)
		block := http2.AppendStatus(nil, status)
		block = http2.AppendField(block, "content-length", "0")
		if e.reply.RetryAfter != "" {
			block = http2.AppendField(block, "retry-after", e.reply.RetryAfter)
		}
		block = http2.AppendField(block, "server", accesslog.Server)
		out = http2.Append(out, http2.Headers, endHeaders, s.id, block)
		if !s.clientEnded { // stop the upload without an error
			out = http2.AppendReset(out, s.id, http2.NoError)
		}
		return status, out
	case freesStream:
		return e.report, http2.AppendReset(out, s.id, http2.NoError)
	case endsEvents:
		end := s.events.Ending()
		fits := h.windows.Allow(s.window, len(end.Last))
		switch {
		case end.Proper && fits:
			h.windows.Conn.Sends(uint32(len(end.Last)))
			return "", http2.Append(out, http2.Data, http2.FlagEndStream, s.id, end.Last)
		case end.Proper: // EventSource reconnects without it
			return "", http2.Append(out, http2.Data, http2.FlagEndStream, s.id, nil)
		case end.Last != nil && fits:
			h.windows.Conn.Sends(uint32(len(end.Last)))
			out = http2.Append(out, http2.Data, 0, s.id, end.Last)
			return end.Name, http2.AppendReset(out, s.id, http2.InternalError)
		}
	}
	return e.report, http2.AppendReset(out, s.id, http2.InternalError)
}

// stuckTime is the limit of a write to a client at the last call.
const stuckTime = 20 * time.Millisecond

// endFor ends the connection. It returns the conversations whose clients lose something, or the last word if it is the
// last call and the streams have to reach a boundary first.
func (h *h2) endFor(why cause, code http2.ErrCode) ([]drain.Conversation, *lastWord) {
	c := h.c
	wait := lingerTime
	if why.on == onLastCall || c.evicted.Load() { // a client that does not read must not delay the others
		wait = stuckTime
	}
	_ = c.client.SetWriteDeadline(time.Now().Add(wait)) // down may be writing
	c.wmu.Lock()
	if c.hasEnded() {
		c.wmu.Unlock()
		return nil, nil
	}
	if why.on == onLastCall {
		c.mu.Lock()
		var w *lastWord
		if !c.end.done() && h.canSend() && h.within() {
			if c.end.word == nil {
				c.end.word = &lastWord{c: c, done: make(chan struct{}), was: h.describeStreamsLocked()}
				h.finishing = true
			}
			w = c.end.word
		}
		c.mu.Unlock()
		if w != nil {
			_ = c.client.SetWriteDeadline(time.Time{}) // until hurryLastWord
			c.wmu.Unlock()
			return nil, w
		}
	}
	was := h.endStreams(why, code)
	c.wmu.Unlock()
	c.sendEnd()
	return was, nil
}

// forgetLocked frees what only further frames would need: the client may take its time to close.
func (h *h2) forgetLocked() {
	h.upTable, h.dnTable = http2.Decoder{}, http2.Decoder{}
	h.up.Drop()
	h.down.Drop()
	if h.check != nil {
		h.check.Stop() // it would keep the connection's memory
	}
}

// endInvalidH2 ends the connection of a client that violates the protocol or a limit.
func (h *h2) endInvalidH2(err error) {
	c := h.c
	c.in.stats.CountRefused(0)
	code := http2.CodeOf(err)
	flood, isFlood := errors.AsType[http2.Flood](err)
	if isFlood {
		c.in.stats.H2.Floods[flood].Add(1)
	} else {
		c.in.stats.H2.BadPeers.Add(1)
	}
	c.p.warn("client violates HTTP/2; closing its connection", "peer", c.client.RemoteAddr().String(), "error", err,
		"code", code.String())
	r := accesslog.Reply{Status: 400, Body: err.Error()}
	if isFlood && flood.IsHead() {
		r.Status = 431
	}
	h.endFor(cause{onRefused, &r, accesslog.InvalidHTTP2}, code)
}

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

// A truncated message of gRPC makes its client report INTERNAL whatever trailers follow, and an event stream can end
// properly, or with an error event, only between two events. So at the last call each stream is passed on to the end of
// its message, and when all streams are between two messages, or the time has passed, all are ended.

// within reports whether the end of the connection would truncate a message. mu is held.
func (h *h2) within() bool { return slices.ContainsFunc(h.streams, (*stream).within) }

func (s *stream) within() bool {
	switch {
	case s.status == 0 || s.serverEnded:
		return false
	case s.grpc:
		return s.messages.Within()
	}
	return s.events != nil && !s.events.BetweenEvents()
}

// passLastMessages passes on only the rest of begun messages and frames of no stream; false if the connection has
// ended. wmu is held.
func (d *down) passLastMessages() bool {
	c := d.c
	b, h := d.buf, c.h2
	var out []byte
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		return false
	}
	var err error
	for h.within() {
		var n int
		var pass bool
		if n, pass, err = c.h2.lastFrame(b.Bytes()); n == 0 || err != nil {
			break
		}
		if pass {
			out = append(out, b.B[b.R:b.R+n]...)
		}
		b.R += n
	}
	done := err != nil || !h.within()
	c.h2.batchEndsLocked()
	c.mu.Unlock()
	if len(out) > 0 {
		h.torn = c.client.Send(out, false) != nil || h.torn
	}
	if done || h.torn {
		c.h2.endLastMessages()
		return false
	}
	return true
}

// lastFrame returns the length of the next frame, 0 if incomplete, and whether to pass it on. mu is held.
func (h *h2) lastFrame(p []byte) (n int, pass bool, err error) {
	c := h.c
	if len(p) < http2.HeaderLen {
		return 0, false, nil
	}
	at := http2.ReadHeader(p)
	if err := h.down.Check(at); err != nil {
		return 0, false, err
	}
	if n = http2.HeaderLen + int(at.Length); len(p) < n {
		return 0, false, nil
	}
	s := h.streams.get(at.Stream)
	switch {
	case at.Stream == 0:
		pass = at.Type != http2.GoAway
	case s == nil, s.finished:
	case at.Type == http2.Data && s.status != 0 && (s.within() || at.Has(http2.FlagEndStream)):
		v := downVisitor{c}
		if v.Data(at, p[http2.HeaderLen:n]); at.Has(http2.FlagEndStream) { // the app has ended it
			v.EndStream(at.Stream)
		}
		return n, true, nil
	case at.Type == http2.Headers && at.Has(http2.FlagEndStream) && at.Has(http2.FlagEndHeaders) && s.status != 0 &&
		!h.skipped:
		// The app has ended it. The client can decode the block if none before was skipped.
		return n, true, h.down.Read(at, p[http2.HeaderLen:n], downVisitor{c})
	case at.Type == http2.RSTStream:
		return n, true, h.down.Read(at, p[http2.HeaderLen:n], downVisitor{c})
	}
	switch {
	case pass:
	case at.Type == http2.Headers, at.Type == http2.PushPromise, at.Type == http2.Continuation:
		h.skipped = true
		fallthrough
	case at.Type == http2.Data:
		if s != nil {
			s.finished = true // there is a gap in it now
			s.messages.Lose()
		}
	}
	return n, pass, nil
}

// endLastMessages ends the connection. wmu is held.
func (h *h2) endLastMessages() {
	c := h.c
	if c.hasEnded() {
		return
	}
	was := h.endStreams(cause{on: onLastCall}, http2.NoError)
	c.mu.Lock()
	c.end.word.was, c.end.word.ending = was, drain.EndingCompleted
	c.mu.Unlock()
	c.sendEnd()
}

// hurryLastMessages ends the connection now, unless a write to the client is blocked.
func (h *h2) hurryLastMessages() {
	if h.c.wmu.TryLock() {
		h.endLastMessages()
		h.c.wmu.Unlock()
	}
}
