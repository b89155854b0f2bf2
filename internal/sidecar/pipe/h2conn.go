package pipe

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2 is the state of a connection that carries HTTP/2. Bytes pass unchanged. Header blocks are decoded on a copy, for
// the names of requests, and frames of the pipe's are inserted between frames of the app's.
//
// All of it is guarded by the connection's mu; down and closing also by its wmu, since the state of the follower is
// that of the client only when the bytes before have been sent.
type h2 struct {
	c       *conn
	streams streams
	counted int    // streams that are not quiet
	opened  int    // streams in the present batch of frames
	logged  int    // bytes that access log entries hold for open streams
	last    uint32 // highest stream of the client that was forwarded
	appLast uint32 // last stream of the app's GOAWAY

	up      http2.Follower
	upTable http2.Decoder
	guard   http2.Guard

	down    http2.Follower
	dnTable http2.Decoder
	closing http2.Closing

	check *time.Timer // continues the closing; nil before
	due   atomic.Bool // a GOAWAY may be: the holder of wmu looks again after its release

	ofClient http2.TableLimit // for the app's encoder, from the client's SETTINGS
	ofApp    http2.TableLimit // for the client's encoder
	windows  http2.Windows    // of the responses

	torn      bool // the bytes sent to the client may end within a frame
	finishing bool // at the last call, until messages have ended
	skipped   bool // a header block of the app was not passed on

	request  streamHead   // of the present header block
	response responseHead // of the present header block
	now      time.Time
}

func (c *conn) newH2() *h2 {
	limits := &c.p.cfg.H2
	h := &h2{c: c, appLast: http2.MaxStreamID, ofClient: http2.NewTableLimit(), ofApp: http2.NewTableLimit(),
		windows: http2.NewWindows(), guard: http2.Guard{Limits: limits}, down: http2.Follower{MaxBlock: maxAppBlock},
		upTable: http2.NewDecoder(requestFields), dnTable: http2.NewDecoder(responseFields)}
	h.up = http2.Follower{MaxBlock: limits.MaxHeaderBlock, Guard: &h.guard}
	if c.p.cfg.AccessLog != nil {
		h.upTable.Want = loggedRequestFields
	}
	h.upTable.MaxList = limits.MaxHeaderList
	return h
}

// maxAppBlock bounds the coded header blocks of the app, bytes.
const maxAppBlock = 256 << 10

// becomeH2 follows HTTP/2 from the client's preface on, which begins the buffer.
func (u *up) becomeH2() {
	c := u.c
	c.mu.Lock()
	if c.end.last() {
		c.mu.Unlock()
		u.discard()
		return
	}
	if c.h2 == nil { // it exists if the app sent SETTINGS first
		c.h2 = c.newH2()
	}
	c.h2.up.Hold = u.holdBlock
	c.mode, c.awaitsFirst = modeH2, false
	c.arriving = true // until the app has spoken: one that does not speak HTTP/2 may serve what passes as frames
	c.recountLocked()
	c.mu.Unlock()
	u.clearDeadline()
	u.mode = modeH2
	b := u.buf
	if c.app == nil {
		if err := u.dial(); err != nil { // requests are read and answered
			c.wmu.Lock()
			if h := c.h2; !c.hasEnded() && !h.down.Spoke { // in place of the app: gRPC's clients send no request before
				h.down.Spoke = true
				_ = c.client.Send(http2.Append(nil, http2.Settings, 0, 0, nil), false)
			}
			c.wmu.Unlock()
			c.setArriving(false)
			b.R += len(http2.Preface)
			return
		}
	}
	if err := c.app.Send(b.B[b.R:b.R+len(http2.Preface)], true); err != nil {
		u.discard()
	}
	b.R += len(http2.Preface)
	c.mu.Lock()
	hasSpoken := c.h2.down.Spoke
	c.mu.Unlock()
	if hasSpoken {
		c.setArriving(false)
	}
}

// isOther reports whether the client's bytes behind its preface are no HTTP/2, or the app's were none.
func (u *up) isOther() bool {
	return u.c.modeNow() == opaque || !u.c.h2.up.Spoke && !http2.MayBeFirst(u.buf.Bytes())
}

// isOtherLocked reports whether the app's first bytes behind a client's preface are no HTTP/2. Then bytes pass in both
// directions: the app may serve any that passed as frames. mu is held.
func (h *h2) isOtherLocked(b []byte) bool {
	c := h.c
	if h.down.Spoke || c.end.done() || http2.MayBeFirst(b) {
		return false
	}
	c.p.failed.Add(uint64(len(h.streams)))
	h.closeStreamsLocked(accesslog.ProtocolError)
	h.up.Drop()
	c.mode, c.arriving = opaque, false
	c.recountLocked()
	c.noteOpaque(counters.OpaqueUnknown)
	_ = c.client.SetReadDeadline(time.Now())
	return true
}

// forwardFrames forwards frames of the client. wait is true if more bytes are needed.
func (u *up) forwardFrames() (wait bool) {
	c := u.c
	b := u.buf
	h := c.h2
	if c.app != nil && u.isOther() {
		if c.in.Protocol == Auto || c.modeNow() == opaque {
			u.passAsBytes()
		} else {
			u.discard()
			b.R = b.W
			h.endInvalidH2(http2.ErrFrameOrder)
		}
		return false
	}
	c.mu.Lock()
	if c.end.done() { // after the final GOAWAY: the client repeats the request on another connection
		if http2.ContainsHeaders(b.Bytes()) {
			c.raceLocked()
		}
		c.mu.Unlock()
		u.discard()
		return false
	}
	n, err := h.up.Follow(b.Bytes(), upVisitor{c})
	h.up.Release()
	h.upTable.Release()
	c.h2.batchEndsLocked()
	isUsed := len(h.streams) > 0
	slow := h.up.InHeaders()
	u.blockHeld, u.hasStreams = h.up.Held(), isUsed
	finished := h.finishing && !h.within()
	c.mu.Unlock()
	if finished { // the client has reset the last stream within a message
		c.h2.hurryLastMessages()
	}
	if c.app == nil { // it cannot be reached: each request is answered so
		b.R += n
		if err == nil && !isUsed {
			return true
		}
		c.h2.endFor(cause{on: u.whyUnreachable()}, http2.NoError)
		u.discard()
		return false
	}
	if n > 0 {
		if sendErr := c.app.Send(b.B[b.R:b.R+n], false); sendErr != nil {
			u.discard() // the end of the app's connection decides how to continue
		}
		b.R += n
	}
	switch {
	case errors.Is(err, http2.ErrHeld):
		u.endUnfinished()
		return false
	case err != nil:
		u.discard()
		b.R = b.W
		u.admitOversized(err)
		c.h2.endInvalidH2(err)
		return false
	}
	if slow && !u.timed {
		u.timed = true
		_ = c.client.SetReadDeadline(time.Now().Add(c.p.cfg.HeadTimeout))
	} else if !slow {
		u.clearDeadline()
	}
	c.h2.finishIfDrained(false)
	return true
}

// admitOversized opens a stream whose header block is too large to forward, so that its client gets a response.
func (u *up) admitOversized(err error) {
	c := u.c
	h := c.h2
	id := h.up.Last().Stream
	if flood, ok := errors.AsType[http2.Flood](err); !ok || !flood.IsHead() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.done() || id <= h.last || id%2 == 0 {
		return
	}
	h.last = id
	s := newStream(id, h.clock())
	s.line = append(s.line, "(a head that is too large)"...)
	s.clientEnded = true // the rest of the request does not matter
	c.h2.openStreamLocked(s)
	c.in.stats.Requests.Add(1)
	c.h2.batchEndsLocked()
}

// batchEndsLocked updates the counts after the frames of one read. mu is held.
func (h *h2) batchEndsLocked() {
	h.now = time.Time{}
	if h.opened > 0 {
		h.opened = 0
		h.c.p.changed() // arrivals; the counts may be the same
	}
	h.c.recountLocked()
}

// passFrames passes on frames of the app. It returns false if the connection has ended or the app violates the
// protocol.
func (d *down) passFrames() bool {
	c := d.c
	b := d.buf
	h := c.h2
	c.wmu.Lock()
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		c.wmu.Unlock()
		return false
	}
	if h.finishing {
		c.mu.Unlock()
		defer c.wmu.Unlock()
		return d.passLastMessages()
	}
	had := h.down.Spoke
	n, err := h.down.Follow(b.Bytes(), downVisitor{c})
	begins := !had && h.down.Spoke && c.mode == modeH2
	h.down.Release()
	h.dnTable.Release()
	c.h2.batchEndsLocked()
	c.mu.Unlock()
	if n > 0 {
		if sendErr := c.client.Send(b.B[b.R:b.R+n], false); sendErr != nil {
			h.torn = true
			c.wmu.Unlock()
			return false
		}
		b.R += n
	}
	c.wmu.Unlock()
	if begins {
		c.setArriving(false)
	}
	if err != nil {
		d.err = http1.Malformed(err.Error())
		return false
	}
	return !c.h2.finishIfDrained(true)
}

// clock returns the time of the present batch.
func (h *h2) clock() time.Time {
	if h.now.IsZero() {
		h.now = time.Now()
	}
	return h.now
}
