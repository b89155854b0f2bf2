package pipe

import (
	"errors"
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
		end := grpc.Unavailable
		end.Message = e.reply.Message()
		for _, field := range end.Trailers() {
			block = http2.AppendField(block, field[0], field[1])
		}
		return e.report, http2.Append(out, http2.Headers, endHeaders, s.id, block)
	case sendsReply:
		status := strconv.Itoa(e.reply.Status)
		block := http2.AppendField(nil, ":status", status)
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
