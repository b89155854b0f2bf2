package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2 is what a connection knows when it carries HTTP/2. Bytes go through as they
// are; header blocks are read beside, so that requests have names, and frames of
// ours go in between frames of the app's.
//
// All of it is guarded by the connection's mu; down and goodbye also by its wmu:
// what the follower says of the next byte is true only if the bytes before it
// have been sent.
type h2 struct {
	streams streams
	counted int    // of them, those that are not quiet
	opened  int    // in the batch of frames at hand
	logged  int    // bytes that the access log holds for the open streams
	last    uint32 // the highest of the client's that was forwarded
	appLast uint32 // the last that the app will serve, of its GOAWAY

	up      http2.Follower
	upTable http2.Decoder
	guard   http2.Guard

	down     http2.Follower
	dnTable  http2.Decoder
	shutdown http2.Shutdown
	goAwayAt time.Time    // of the first goodbye
	kind     http2.Client // by its requests

	checkScheduled bool // a timer will, how it is with the goodbye

	ofClient http2.TableLimit // of the app's encoder, by the client's SETTINGS
	ofApp    http2.TableLimit // of the client's encoder

	torn      bool // what was sent to the client may end within a frame
	finishing bool // the last call waits for the ends of messages
	skipped   bool // a header block of the app's has not been passed on

	request  streamHead   // the header block at hand
	response responseHead // the same of a response
	now      time.Time
}

func (c *conn) newH2() *h2 {
	limits := &c.p.cfg.H2
	h := &h2{appLast: http2.MaxStreamID, ofClient: http2.NewTableLimit(), ofApp: http2.NewTableLimit()}
	h.guard = http2.Guard{Limits: limits}
	h.up = http2.Follower{MaxBlock: limits.MaxHeaderBlock, Guard: &h.guard}
	h.down = http2.Follower{MaxBlock: maxAppBlock}
	h.upTable, h.dnTable = http2.NewDecoder(requestFields), http2.NewDecoder(responseFields)
	if c.p.cfg.AccessLog != nil {
		h.upTable.Want = loggedRequestFields
	}
	h.upTable.MaxList = limits.MaxHeaderList
	return h
}

// maxAppBlock bounds header blocks of the app, bytes of their coded form.
const maxAppBlock = 256 << 10

// becomeH2 follows HTTP/2 from the client's preface on.
func (c *conn) becomeH2() {
	c.mu.Lock()
	if c.end.last() {
		c.mu.Unlock()
		c.up.state = upDiscard
		return
	}
	if c.h2 == nil { // the app may have spoken first, or the request may have been an upgrade
		c.h2 = c.newH2()
	}
	c.mode, c.awaitsFirst = modeH2, false
	c.arriving = true // until the app is there
	c.recountLocked()
	c.mu.Unlock()
	c.clearDeadline()
	c.up.state = upH2
	b := c.up.buf
	if c.app == nil {
		if err := c.dial(); err != nil { // what comes is read and answered
			c.sendSettings()
			c.setArriving(false)
			b.R += len(http2.Preface)
			return
		}
	}
	if err := c.app.Send(b.B[b.R:b.R+len(http2.Preface)], true); err != nil {
		c.up.state = upDiscard
	}
	b.R += len(http2.Preface)
	c.setArriving(false)
}

// sendSettings begins the way to the client in the place of an app that has
// refused: some clients, gRPC's among them, ask only when the server has spoken.
func (c *conn) sendSettings() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if !c.hasEnded() && !c.h2.down.Spoke {
		c.h2.down.Spoke = true
		_ = c.client.Send(http2.Append(nil, http2.Settings, 0, 0, nil), false)
	}
}

// forwardFrames forwards what the client has sent as far as it is understood.
func (c *conn) forwardFrames() (wait bool) {
	b := c.up.buf
	h := c.h2
	c.mu.Lock()
	if c.end.done() { // the last stream has been named: the client asks again elsewhere
		if http2.ContainsHeaders(b.Bytes()) {
			c.raceLocked()
		}
		c.mu.Unlock()
		c.up.state = upDiscard
		return false
	}
	n, err := h.up.Follow(b.Bytes(), upVisitor{c})
	h.up.Release()
	h.upTable.Release()
	c.batchEndsLocked()
	asked := len(h.streams) > 0
	slow := h.up.InHeaders()
	finished := h.finishing && !h.within()
	c.mu.Unlock()
	if finished { // the client has reset what was waited for
		c.hurryLastMessages()
	}
	if c.app == nil { // it has refused: each request is told so
		b.R += n
		if err == nil && !asked {
			return true
		}
		c.failStreams(c.whyUnreachable(), http2.NoError)
		c.up.state = upDiscard
		return false
	}
	if n > 0 {
		if sendErr := c.app.Send(b.B[b.R:b.R+n], false); sendErr != nil {
			c.up.state = upDiscard // the app's own end says how it goes on
		}
		b.R += n
	}
	if err != nil {
		c.up.state = upDiscard
		b.R = b.W
		c.admitOversized(err)
		c.endInvalidH2(err)
		return false
	}
	c.timeHeaders(slow)
	c.finishIfDrained()
	return true
}

// admitOversized opens the stream whose header block is too large, so that its
// client gets an answer before the connection ends. The block is not forwarded.
func (c *conn) admitOversized(err error) {
	h := c.h2
	id := h.up.Last().Stream
	if flood, ok := err.(http2.Flood); !ok || !flood.IsHead() {
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
	s.clientEnded = true // nothing of it is waited for
	c.openStreamLocked(s)
	c.in.stats.requests.Add(1)
	c.batchEndsLocked()
}

// timeHeaders gives a header block that has begun its time to come to its end.
func (c *conn) timeHeaders(slow bool) {
	switch {
	case slow && !c.up.timed:
		c.up.timed = true
		_ = c.client.SetReadDeadline(time.Now().Add(c.p.cfg.HeadTimeout))
	case !slow && c.up.timed:
		c.clearDeadline()
	}
}

// batchEnds brings the counts up to date after the frames of one read. mu is held.
func (c *conn) batchEndsLocked() {
	h := c.h2
	h.now = time.Time{}
	if h.opened > 0 {
		h.opened = 0
		c.p.changed() // arrivals, though the counts may stay
	}
	c.recountLocked()
}

// passFrames passes on what the app has sent as far as it is understood. It
// returns false when the connection is over or the app is not understood.
func (c *conn) passFrames() bool {
	b := c.down.buf
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
		return c.passLastMessages()
	}
	n, err := h.down.Follow(b.Bytes(), downVisitor{c})
	h.down.Release()
	h.dnTable.Release()
	c.batchEndsLocked()
	c.mu.Unlock()
	if n > 0 {
		if sendErr := c.client.Send(b.B[b.R:b.R+n], false); sendErr != nil {
			h.torn = true
			c.wmu.Unlock()
			return false
		}
		b.R += n
	}
	if err == nil {
		c.sendPendingGoAway()
	}
	c.wmu.Unlock()
	if err != nil {
		c.down.err = http1.Malformed(err.Error())
		return false
	}
	return !c.finishIfDrained()
}

// clock is the time of the batch at hand.
func (h *h2) clock() time.Time {
	if h.now.IsZero() {
		h.now = time.Now()
	}
	return h.now
}
