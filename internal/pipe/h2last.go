package pipe

import (
	"slices"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// A message of gRPC that is cut makes its client's library report INTERNAL, whatever
// trailers follow, and an event stream can only be ended properly in between two
// events. So at the last call a stream is ended in between two of them: those that
// stand there say nothing more, the others come to the end of theirs, and when all
// have, or the time is up, all are ended.

// within says whether a response would be cut within a message. mu is held.
func (h *h2) within() bool { return slices.ContainsFunc(h.streams, (*stream).within) }

func (s *stream) within() bool {
	switch {
	case s.status == 0 || s.serverEnded:
		return false
	case s.grpc:
		return s.messages.Within()
	}
	return s.events != nil && s.events.Reconnects() && !s.events.BetweenEvents()
}

// requestLastMessages has the connection ended when no gRPC message is under way. It
// returns nil when there is none to wait for. wmu is held.
func (c *conn) requestLastMessages() *lastWord {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.h2
	if c.end.done() || !h.canSend() || !h.within() {
		return nil
	}
	if c.end.word == nil {
		c.end.word = &lastWord{done: make(chan struct{}), was: c.describeStreamsLocked()}
		h.finishing = true
	}
	return c.end.word
}

// passLastMessages passes on only what ends a message that has begun, and what
// belongs to no stream. It returns false when the connection has ended. wmu is held.
func (c *conn) passLastMessages() bool {
	b, h := c.down.buf, c.h2
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
		if n, pass, err = c.lastFrame(b.Bytes()); n == 0 || err != nil {
			break
		}
		if pass {
			out = append(out, b.B[b.R:b.R+n]...)
		}
		b.R += n
	}
	done := err != nil || !h.within()
	c.batchEndsLocked()
	c.mu.Unlock()
	if len(out) > 0 {
		h.torn = c.client.Send(out, false) != nil || h.torn
	}
	if done || h.torn {
		c.endLastMessages()
		return false
	}
	return true
}

// lastFrame looks at the next frame and says how long it is, and whether it is
// passed on. It is 0 bytes long when not all of it is there. mu is held.
func (c *conn) lastFrame(p []byte) (n int, pass bool, err error) {
	if len(p) < http2.HeaderLen {
		return 0, false, nil
	}
	h := c.h2
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
		if v.Data(at, p[http2.HeaderLen:n]); at.Has(http2.FlagEndStream) { // it has ended by itself
			v.EndStream(at.Stream)
		}
		return n, true, nil
	case at.Type == http2.Headers && at.Has(http2.FlagEndStream) && at.Has(http2.FlagEndHeaders) && s.status != 0 && !h.skipped:
		// It has ended by itself. Its block is good as long as none has been left out.
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
			s.finished = true // what follows would have a gap before it
			s.messages.Lose()
		}
	}
	return n, pass, nil
}

// endLastMessages ends the connection that has come to its end, or has run out of
// time. wmu is held.
func (c *conn) endLastMessages() {
	if c.hasEnded() {
		return
	}
	was := c.endStreams(&endLastCall, http2.NoError)
	c.mu.Lock()
	c.end.word.was, c.end.word.ending = was, "ended"
	c.mu.Unlock()
	c.sendEnd()
}

// hurryLastMessages ends the connection now, unless somebody hangs in a write.
func (c *conn) hurryLastMessages() {
	if c.wmu.TryLock() {
		c.endLastMessages()
		c.wmu.Unlock()
	}
}
