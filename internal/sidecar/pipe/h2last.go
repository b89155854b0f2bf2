package pipe

import (
	"slices"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

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
