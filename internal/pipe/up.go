package pipe

import (
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// up is the state of the way from the client to the app; its goroutine's own.
type up struct {
	state     upState
	buf       *buffer
	large     bool // the last read filled its buffer
	scanned   int  // bytes of the head at hand that hold no end of it
	body      body
	splices   int64     // how much is to be moved within the kernel next
	copies    bool      // splicing has failed: nothing more of this is spliced
	waits     bool      // an upgrade has been asked for with this request
	timed     bool      // a deadline for the head or the whole request is set
	headBegan time.Time // when it came in parts and the whole request has a limit
	carried   uint64    // bytes without meaning, for the log
	upgraded  []byte    // the request that became a tunnel
	unsent    int       // what the client had not taken when we looked last, after our end
	err       error     // why reading ended; io.EOF for a FIN
}

type upState uint8

const (
	upSniff   upState = iota // protocol unknown
	upHead                   // in between or within heads
	upBody                   // within a request's body
	upPreface                // the preface of HTTP/2, which the app has accepted
	upH2                     // frames
	upWS                     // frames of a WebSocket
	upDecide                 // an upgrade is asked for: what follows depends on the answer
	upOpaque                 // bytes
	upDiscard                // nothing is forwarded any more
)

func (u *up) release() {
	if u.buf != nil {
		u.buf.free()
		u.buf = nil
	}
}

// runUp reads from the client until it or we have ended.
func (c *conn) runUp() {
	switch c.in.Protocol {
	case TCP:
		c.up.state = upOpaque
	case HTTP:
		c.up.state = upHead // a preface of HTTP/2 is looked for there
	}
	read := c.readClient
	for c.up.state != upOpaque {
		c.up.err = nil
		if err := c.client.raw.Read(read); err != nil {
			c.up.err = err
		}
		if c.up.err != nil && !c.clientPaused() {
			break
		}
		if c.up.splices > 0 {
			c.spliceUp(c.up.splices)
			c.up.splices = 0
		}
	}
	if c.up.state == upOpaque {
		c.carryUp()
		return
	}
	c.up.release()
	c.clientEnded()
}

// clientPaused handles a read deadline. It returns whether to read on.
func (c *conn) clientPaused() bool {
	if !errors.Is(c.up.err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	over, turned, isWS := c.over, c.mode == opaque, c.mode == modeWS
	pause := lingerTime
	if c.resets {
		pause = stuckTime
	}
	c.mu.Unlock()
	switch {
	case over: // the client does not close: leave, unless it is still taking what there is for it
		left := c.client.unsent()
		if left == 0 || left == c.up.unsent {
			return false
		}
		c.up.unsent = left
		_ = c.client.SetReadDeadline(time.Now().Add(pause))
		return true
	case isWS: // the client has not answered our close frame
		c.endWebSocket()
		return true
	case turned: // the app spoke first
		_ = c.client.SetReadDeadline(time.Time{})
		c.up.state = upOpaque
		return true
	case c.up.timed:
		c.clearDeadline()
		if c.forgetFresh() {
			c.close()
			return true
		}
		details := "request_header_timeout"
		if c.up.state == upBody {
			details = "request_overall_timeout"
		}
		c.refuse(&replyTimeout, "", details)
		return true
	}
	_ = c.client.SetReadDeadline(time.Time{})
	return true
}

// readClient takes what has come from the client. It returns false to wait for
// more, without a buffer if there is nothing in it.
func (c *conn) readClient(fd uintptr) bool {
	u := &c.up
	for {
		if u.buf == nil {
			u.buf = getBuffer(u.large)
		}
		buf, ok := u.buf.room(max(c.p.cfg.MaxHead, c.p.cfg.H2.largestHeld()) + smallBuffer)
		u.buf = buf
		if !ok { // only a head can fill it
			c.refuse(c.p.cfg.tooLong(buf.bytes()), flagBadRequest, "http1.headers_too_large")
			continue
		}
		room := len(buf.b) - buf.w
		n, errno := c.client.receive(fd, buf.b[buf.w:])
		switch {
		case errno == unix.EAGAIN:
			if buf.r == buf.w {
				u.release()
			}
			return false
		case errno != 0:
			u.err = os.NewSyscallError("read", errno)
			return true
		case n == 0:
			u.err = io.EOF
			return true
		}
		u.large = n == room
		buf.w += n
		if !c.fromClient() {
			return true
		}
		if u.splices = c.splicesUp(); u.splices > 0 {
			return true
		}
		if u.large && u.buf.isSmall() {
			u.release()
		}
	}
}

// fromClient forwards what is in the buffer as far as it is understood. It
// returns false when up has to leave its read loop.
func (c *conn) fromClient() bool {
	u := &c.up
	b := u.buf
	for b.r < b.w {
		switch u.state {
		case upDiscard:
			c.noteRace()
			b.r = b.w
			return true
		case upOpaque:
			return false
		case upSniff:
			switch c.sniff(b.bytes()) {
			case modeH2:
				c.becomeH2()
				continue
			case opaque:
				u.state = upOpaque
				c.turnOpaque()
				return false
			case undecided:
				return true
			}
			u.state = upHead
		case upDecide:
			c.awaitDecision()
		case upPreface:
			if c.takePreface() {
				return true
			}
		case upH2:
			if c.forwardFrames() {
				return true
			}
		case upWS:
			c.forwardWebSocket()
		case upHead, upBody:
			if done, leave := c.forwardRequests(); leave {
				return false
			} else if done {
				return true
			}
		}
	}
	return true
}

// forwardRequests forwards complete heads and as much of the bodies as is
// there, in one write. wait is true when more bytes are needed.
func (c *conn) forwardRequests() (wait, leave bool) {
	u := &c.up
	b := u.buf
	pos := b.r
	stop := func(r *reply, flag, details string) (bool, bool) {
		if pos > b.r && c.app != nil {
			_ = c.app.send(b.b[b.r:pos], false)
		}
		b.r = pos
		c.refuse(r, flag, details)
		return false, false
	}
	begun := -1 // where the request at hand begins, when none of it has been forwarded
	again := false
scan:
	for pos < b.w {
		if u.state == upBody {
			n, done, err := u.body.advance(b.b[pos:b.w])
			pos += n
			if err != nil {
				if begun >= 0 { // then it does not have to be
					pos = begun
					c.takeBack()
				}
				return stop(replyForBody(err), flagBadRequest, "http1.codec_error")
			}
			if !done {
				break
			}
			c.requestEnds()
			continue
		}
		if u.state != upHead {
			break
		}
		rest := b.b[pos:b.w]
		if u.scanned == 0 {
			for len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' { // RFC 9112, 2.2
				if pos > b.r {
					again = true // forward what precedes it first
					break scan
				}
				pos, b.r, rest = pos+2, b.r+2, rest[2:]
			}
			if len(rest) == 0 || len(rest) == 1 && rest[0] == '\r' {
				break
			}
			if isPrefacePrefix(rest) && c.idle() {
				if len(rest) < len(preface) {
					break
				}
				return c.becomeH2()
			}
		}
		from := max(0, u.scanned-len(endOfHead)+1)
		i := bytes.Index(rest[from:], endOfHead)
		if i < 0 {
			if r := c.p.cfg.tooLong(rest); r != nil {
				return stop(r, flagBadRequest, "http1.headers_too_large")
			}
			u.scanned = len(rest)
			c.headBegins(rest)
			break
		}
		end := from + i + len(endOfHead)
		u.scanned = 0
		if r := c.p.cfg.tooLong(rest[:end]); r != nil {
			return stop(r, flagBadRequest, "http1.headers_too_large")
		}
		h, err := parseRequest(rest[:end])
		if err != nil {
			return stop(replyFor(err), flagBadRequest, "http1.codec_error")
		}
		if h.lines > c.p.cfg.MaxFields {
			return stop(&replyTooLarge, flagBadRequest, "http1.too_many_headers")
		}
		if c.app == nil && !c.isOver() {
			c.setArriving(true)
			if err := c.dial(); err != nil {
				c.admit(&h, rest[:end])
				b.r = b.w
				u.state = upDiscard
				why := c.whyUnreached()
				c.answer(why.reply, why.flag, why.details)
				return true, false
			}
		}
		if !c.admit(&h, rest[:end]) {
			u.state = upDiscard
			break
		}
		begun = pos
		pos += end
	}
	if pos > b.r && c.app != nil {
		// When the app does not take it, its answer or its end decides (down).
		if err := c.app.send(b.b[b.r:pos], false); err != nil {
			u.state = upDiscard
		}
	}
	b.r = pos
	return !again && (u.state == upHead || u.state == upBody), u.state == upOpaque
}

// admit puts a request into the queue before it is forwarded. It returns false
// when the connection is being ended: the request is not forwarded then.
func (c *conn) admit(h *head, raw []byte) bool {
	u := &c.up
	c.clearDeadline()
	u.body = h.body
	u.waits = h.upgrade || h.isConnect
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last || c.over {
		c.arriving = false
		c.recount()
		return false
	}
	c.mode, c.fresh = http1, false
	q := c.push()
	q.began = time.Now()
	q.isHead, q.connect, q.upgrade, q.close, q.quiet = h.isHead, h.isConnect, h.upgrade, h.close, h.quiet
	q.wantsWS = h.webSocket
	q.line = append(q.line, raw[h.method.from:min(h.target.to, maxLine)]...)
	q.entry = c.p.newEntry(c, h, raw)
	// Nothing follows a client's close, nor HTTP/1.0's only request (RFC 9112, 9.6).
	c.last = h.close && !u.waits
	if u.waits {
		c.decided = make(chan struct{})
		u.upgraded = append(u.upgraded[:0], q.line...)
		q.h2c = h2cSettings(raw)
	}
	if !h.quiet && !c.uncounted() {
		c.p.arrivals.Add(1)
	}
	c.in.stats.requests.Add(1)
	if c.arriving = h.body.kind != noBody; c.arriving {
		u.state = upBody
		c.limitRequest()
	} else {
		c.setAfterRequest()
	}
	if c.busy {
		c.p.changed() // an arrival, though the counts stay
	}
	c.recount()
	return true
}

// takeBack takes the request that was admitted last out of the queue: nothing of it
// has been forwarded.
func (c *conn) takeBack() {
	c.up.state = upHead
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.queue) - 1; n >= 0 {
		c.queue = c.queue[:n]
	}
	c.arriving = true // its answer is to come
	c.recount()
}

// requestEnds notes that a request has come whole.
func (c *conn) requestEnds() {
	c.clearDeadline()
	c.mu.Lock()
	c.arriving = false
	c.setAfterRequest()
	c.recount()
	c.mu.Unlock()
}

func (c *conn) setAfterRequest() {
	if c.up.state = upHead; c.up.waits {
		c.up.state = upDecide
	}
}

// headBegins notes that a part of a head has come: the connection is busy, and
// the rest must come in time.
func (c *conn) headBegins(part []byte) {
	if len(part) == 0 || c.up.timed && !c.forgetFresh() {
		return
	}
	c.up.timed = true
	now := time.Now()
	if c.p.cfg.RequestTimeout > 0 {
		c.up.headBegan = now
	}
	_ = c.client.SetReadDeadline(now.Add(c.p.cfg.HeadTimeout))
	c.mu.Lock()
	c.arriving = true
	c.recount()
	c.mu.Unlock()
}

// limitRequest sets the deadline for a body, where there is a limit to the whole
// request.
func (c *conn) limitRequest() {
	limit := c.p.cfg.RequestTimeout
	if limit == 0 {
		return
	}
	began := c.up.headBegan
	if c.up.headBegan = (time.Time{}); began.IsZero() {
		began = time.Now()
	}
	c.up.timed = true
	_ = c.client.SetReadDeadline(began.Add(limit))
}

// forgetFresh returns whether nothing had come yet on a connection that was
// given a moment for its first request.
func (c *conn) forgetFresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.fresh
	c.fresh = false
	return was
}

func (c *conn) clearDeadline() {
	if c.up.timed {
		c.up.timed = false
		_ = c.client.SetReadDeadline(time.Time{})
	}
}

// refuse answers what cannot be forwarded, after the responses that are due.
func (c *conn) refuse(r *reply, flag, details string) {
	partly := c.up.state == upBody
	c.up.state = upDiscard
	if b := c.up.buf; b != nil {
		b.r = b.w
	}
	c.clearDeadline()
	c.mu.Lock()
	c.last = true
	// A request that has been forwarded in part cannot be answered by the app.
	broken := partly && len(c.queue) > 0
	var dropped request
	if n := len(c.queue) - 1; broken && n > 0 { // those before it can
		dropped = c.queue[n]
		c.queue = c.queue[:n]
		broken = false
	}
	due := len(c.queue) > 0
	if due && !broken {
		c.refusal = r
		c.arriving = false
		c.recount()
	}
	responding := c.responding
	c.mu.Unlock()
	if !dropped.began.IsZero() {
		c.finish(&dropped, r.status, flag, details)
	}
	switch {
	case due && !broken:
	case broken && responding:
		c.in.stats.refuse(r.status)
		c.close()
	default:
		c.in.stats.refuse(r.status)
		c.answer(r, flag, details)
	}
}

// idle is true when nothing is due on the connection.
func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) == 0
}

// noteRace counts a request that met our closing.
func (c *conn) noteRace() {
	c.mu.Lock()
	first := !c.raced && c.over && c.mode != modeWS
	c.raced = c.raced || first
	c.mu.Unlock()
	if first {
		c.in.stats.raced.Add(1)
	}
}

// awaitDecision waits until the app has answered an upgrade: what the client
// sends after it is a message or not, as the answer says.
func (c *conn) awaitDecision() {
	select {
	case <-c.decided:
	case <-c.ended:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mode == opaque:
		c.up.state = upOpaque
	case c.mode == modeWS:
		c.up.state = upWS
	case c.mode == modeH2:
		c.up.state = upPreface
	case c.over || c.last:
		c.up.state = upDiscard
	default:
		c.up.state = upHead
	}
}

// carryUp forwards what has been read and then everything.
func (c *conn) carryUp() {
	if b := c.up.buf; b != nil {
		c.up.carried = uint64(b.w - b.r)
		if c.app != nil && b.r < b.w {
			if err := c.app.send(b.bytes(), false); err != nil {
				c.client.shut()
			}
		}
		c.up.release()
	}
	if c.app == nil { // the app refused: no protocol in which to say so
		_ = c.client.CloseWrite()
		return
	}
	c.up.carried += c.carry(c.app, c.client)
	if c.isOver() { // read on, so that no reset overtakes our last bytes
		_, _ = io.Copy(io.Discard, c.client.TCPConn)
	}
}

// clientEnded follows the end of what the client sends. A FIN while a response
// is due is a half-close and is passed on; anything else ends the connection.
func (c *conn) clientEnded() {
	c.mu.Lock()
	c.halfClosed = errors.Is(c.up.err, io.EOF)
	answered := c.ws != nil && c.ws.said.Load() // it ends in its own way
	due := (len(c.queue) > 0 && !c.arriving || c.h2 != nil && len(c.h2.streams) > 0) && !c.over && c.halfClosed
	if errno := syscall.Errno(0); errors.As(c.up.err, &errno) && !answered {
		c.over = true // gone: what the app's end means does not reach it any more
		c.recount()
	}
	c.mu.Unlock()
	switch {
	case c.app == nil:
	case answered:
		c.endWebSocket()
	case due:
		_ = c.app.CloseWrite()
	default:
		c.app.shut()
	}
	if c.up.err != nil && errors.Is(c.up.err, syscall.ECONNRESET) {
		c.in.stats.clientResets.Add(1)
	}
}
