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
func (c *conn) endStreams(e *ending, code http2.ErrCode) []drain.Conversation {
	c.mu.Lock()
	was := c.describeStreamsLocked()
	canSend := c.h2.canSend()
	var out []byte
	if canSend && !c.h2.down.Spoke {
		out = http2.Append(out, http2.Settings, 0, 0, nil) // the first frame of a server (RFC 9113, 3.4)
		c.h2.down.Spoke = true
	}
	i := 0
	for _, s := range c.h2.streams {
		if s.status != 0 && !s.serverEnded && e != &endLastCall {
			c.in.stats.Truncated.Add(1)
		}
		how := "truncated"
		if canSend {
			if how, out = s.end(out, e); how == "reset" {
				c.in.stats.H2.TxResets.Add(1)
			}
		}
		if !s.quiet {
			was[i].Ending = how
			i++
		}
		if s.status == 0 && canSend {
			s.status = e.reply.Status
			c.in.stats.Responded(s.status)
		}
	}
	c.closeStreamsLocked(e.before)
	c.end.advance(ended)
	c.end.by = e
	if canSend {
		c.h2.shutdown = http2.Final
		out = append(out, c.finalGoAwayLocked(code)...)
	}
	c.mu.Unlock()
	if canSend {
		_ = c.client.Send(out, true)
	}
	return slices.DeleteFunc(was, func(one drain.Conversation) bool { return one.Ending == "" })
}

// end appends the frames that end a stream, and names them; "" if the client loses nothing.
//
// A truncated response is reset with INTERNAL_ERROR, as net/http's server and Envoy do: Node's node:http2 regards CANCEL
// as an orderly end.
func (s *stream) end(out []byte, e *ending) (string, []byte) {
	const endHeaders = http2.FlagEndHeaders | http2.FlagEndStream
	switch {
	case s.grpc && s.status == 0: // a response of trailers alone
		block := append([]byte(nil), 0x88) // :status 200, of the static table
		block = http2.AppendField(block, "content-type", "application/grpc")
		return "grpc-status " + grpc.Unavailable, http2.Append(out, http2.Headers, endHeaders, s.id, appendGRPC(block, e.reply.Message()))
	case s.grpc && !s.serverEnded:
		return "grpc-status " + grpc.Unavailable, http2.Append(out, http2.Headers, endHeaders, s.id, appendGRPC(nil, e.reply.Message()))
	case s.status == 0:
		status := strconv.Itoa(e.reply.Status)
		block := http2.AppendStatus(nil, status)
		block = http2.AppendField(block, "content-length", "0")
		if e.reply.RetryAfter != "" {
			block = http2.AppendField(block, "retry-after", e.reply.RetryAfter)
		}
		block = http2.AppendField(block, "server", accesslog.Server)
		out = http2.Append(out, http2.Headers, endHeaders, s.id, block)
		if !s.clientEnded { // stop the upload without an error (RFC 9113, 8.1)
			out = http2.AppendReset(out, s.id, http2.NoError)
		}
		return status, out
	case s.serverEnded: // answered in full; the client was still sending
		return "answered", http2.AppendReset(out, s.id, http2.NoError)
	}
	if e.orderly && s.events != nil && s.events.Ending().Proper {
		return "", http2.Append(out, http2.Data, http2.FlagEndStream, s.id, nil)
	}
	return "reset", http2.AppendReset(out, s.id, http2.InternalError)
}

func appendGRPC(block []byte, message string) []byte {
	block = http2.AppendField(block, "grpc-status", grpc.Unavailable)
	return http2.AppendField(block, "grpc-message", message)
}

// endH2AtLastCall ends a connection of HTTP/2. It returns the last word if the streams have to reach a boundary first.
func (c *conn) endH2AtLastCall() ([]drain.Conversation, *lastWord) {
	_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime)) // a client that does not read must not delay the others
	c.wmu.Lock()
	if c.hasEnded() {
		c.wmu.Unlock()
		return nil, nil
	}
	if w := c.requestLastMessages(); w != nil {
		_ = c.client.SetWriteDeadline(time.Time{}) // until hurryLastWord
		c.wmu.Unlock()
		return nil, w
	}
	was := c.endStreams(&endLastCall, http2.NoError)
	c.wmu.Unlock()
	c.sendEnd()
	return was, nil
}

// stuckTime is the limit of a write to a client at the last call.
const stuckTime = 20 * time.Millisecond

// failStreams ends the connection when the app, or the client, has failed it.
func (c *conn) failStreams(e *ending, code http2.ErrCode) {
	wait := lingerTime
	if c.evicted.Load() {
		wait = stuckTime
	}
	_ = c.client.SetWriteDeadline(time.Now().Add(wait)) // down may be writing to a client that does not read
	c.wmu.Lock()
	if c.hasEnded() {
		c.wmu.Unlock()
		return
	}
	c.endStreams(e, code)
	c.wmu.Unlock()
	c.sendEnd()
}

// endInvalidH2 ends the connection of a client that violates the protocol or a limit.
func (c *conn) endInvalidH2(err error) {
	c.in.stats.CountRefused(0)
	code := http2.CodeOf(err)
	flood, isFlood := errors.AsType[http2.Flood](err)
	if isFlood {
		c.in.stats.H2.Floods[flood].Add(1)
	} else {
		c.in.stats.H2.BadPeers.Add(1)
	}
	c.p.warn("client violates HTTP/2; closing its connection", "peer", c.client.RemoteAddr().String(), "error", err, "code", code.String())
	r := accesslog.Reply{Status: 400, Body: err.Error()}
	if isFlood && flood.IsHead() {
		r.Status = 431
	}
	e := same(&r, accesslog.InvalidHTTP2)
	c.failStreams(&e, code)
}
