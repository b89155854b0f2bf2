package pipe

import (
	"errors"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// ending is how open streams are ended.
type ending struct {
	status  string        // of a response that has not begun
	message string        // for gRPC
	code    http2.ErrCode // of GOAWAY
	orderly bool          // a response that has begun may have a proper end where its client loses nothing by it
}

var (
	endLastCall   = ending{"503", accesslog.MessageLastCall, http2.NoError, true}
	endTerminated = ending{"503", replyTerminated.body, http2.NoError, false}
	endRefused    = ending{"503", replyConnectFailed.body, http2.NoError, false}
	endRestarting = ending{"503", replyRestarting.body, http2.NoError, false}
	endOverflow   = ending{"503", replyOverflow.body, http2.NoError, false}
	endProtocol   = ending{"502", replyProtocolError.body, http2.NoError, false}
)

// endStreams ends every open stream as its protocol allows and says which clients
// have lost something. The connection is over afterwards; end is for the caller to call. wmu is held, mu
// is not.
func (c *conn) endStreams(e ending, outcome accesslog.Outcome) []drain.Conversation {
	c.mu.Lock()
	was := c.describeStreams()
	canSay := c.h2.canSay()
	var out []byte
	if canSay && !c.h2.down.Spoke {
		out = http2.Append(out, http2.Settings, 0, 0, nil) // the first frame of a server (RFC 9113, 3.4)
		c.h2.down.Spoke = true
	}
	i := 0
	for _, s := range c.h2.streams {
		if s.status != 0 && !s.serverEnded && outcome != accesslog.LastCall {
			c.in.stats.truncated.Add(1)
		}
		how := "truncated"
		if canSay {
			if how, out = s.end(out, e); how == "reset" {
				c.in.stats.h2.txResets.Add(1)
			}
		}
		if !s.quiet {
			was[i].Ending = how
			i++
		}
		status := s.status
		if status == 0 && canSay {
			status = digits(e.status)
			c.in.stats.responded(status)
		}
		s.status = status
	}
	c.closeStreams(outcome)
	c.over = true
	if canSay {
		c.h2.shutdown = http2.Final
		out = append(out, c.lastGoAway(e.code)...)
	}
	c.mu.Unlock()
	if canSay {
		_ = c.client.Send(out, true)
	}
	return slices.DeleteFunc(was, func(one drain.Conversation) bool { return one.Ending == "" })
}

// end adds the frames that end a stream, and says what they are; "" when the client
// loses nothing.
//
// The half of a response is reset with INTERNAL_ERROR, as net/http's server and
// Envoy do it: Node's node:http2 takes CANCEL for a proper end.
func (s *stream) end(out []byte, e ending) (string, []byte) {
	switch {
	case s.grpc && s.status == 0: // a response of trailers alone
		block := append([]byte(nil), 0x88) // :status 200, of the static table
		block = http2.AppendField(block, "content-type", "application/grpc")
		return "grpc-status " + grpc.Unavailable, http2.Append(out, http2.Headers, http2.FlagEndHeaders|http2.FlagEndStream, s.id, appendGRPC(block, e.message))
	case s.grpc && !s.serverEnded:
		return "grpc-status " + grpc.Unavailable, http2.Append(out, http2.Headers, http2.FlagEndHeaders|http2.FlagEndStream, s.id, appendGRPC(nil, e.message))
	case s.status == 0:
		block := http2.AppendStatus(nil, e.status)
		block = http2.AppendField(block, "content-length", "0")
		if e == endRestarting {
			block = http2.AppendField(block, "retry-after", retryAfter)
		}
		block = http2.AppendField(block, "server", accesslog.Server)
		out = http2.Append(out, http2.Headers, http2.FlagEndHeaders|http2.FlagEndStream, s.id, block)
		if !s.clientEnded { // stop the upload without an error (RFC 9113, 8.1)
			out = http2.AppendReset(out, s.id, http2.NoError)
		}
		return e.status, out
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

// endNowH2 is the last call on a connection of HTTP/2. It returns the last word
// instead when it has to wait for one.
func (c *conn) endNowH2() ([]drain.Conversation, *lastWord) {
	_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime)) // a client that takes nothing must not hold the others' last call
	c.wmu.Lock()
	if c.isOver() {
		c.wmu.Unlock()
		return nil, nil
	}
	if w := c.askLastMessages(); w != nil {
		_ = c.client.SetWriteDeadline(time.Time{}) // until it is hurried
		c.wmu.Unlock()
		return nil, w
	}
	was := c.endStreams(endLastCall, accesslog.LastCall)
	c.wmu.Unlock()
	c.end()
	c.mu.Lock()
	c.recount()
	c.mu.Unlock()
	return was, nil
}

// stuckTime is how long a write to a client that does not read is waited for at
// the last call.
const stuckTime = 20 * time.Millisecond

// failStreams ends the connection when the app has failed it.
func (c *conn) failStreams(outcome accesslog.Outcome, e ending) {
	_ = c.client.SetWriteDeadline(time.Now().Add(lingerTime)) // down may hang in a write to a client that does not read
	c.wmu.Lock()
	if c.isOver() {
		c.wmu.Unlock()
		return
	}
	c.endStreams(e, outcome)
	c.wmu.Unlock()
	c.end()
	c.mu.Lock()
	c.recount()
	c.mu.Unlock()
}

// endH2 ends the connection of a client that does not keep to the protocol, or
// asks too much.
func (c *conn) endH2(err error) {
	c.in.stats.refused.Add(1)
	code := http2.CodeOf(err)
	flood, isFlood := errors.AsType[http2.Flood](err)
	if isFlood {
		c.in.stats.h2.floods[flood].Add(1)
	} else {
		c.in.stats.h2.badPeers.Add(1)
	}
	c.p.complain("a client does not keep to HTTP/2; its connection is ended", "peer", c.client.RemoteAddr().String(), "error", err, "code", code.String())
	status := "400"
	if isFlood && flood.IsHead() {
		status = "431"
	}
	c.failStreams(accesslog.InvalidHTTP2, ending{status, err.Error(), code, false})
}
