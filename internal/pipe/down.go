package pipe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// down is the state of the way from the app to the client; its goroutine's own.
type down struct {
	state   downState
	buf     *buffer
	large   bool
	scanned int
	body    body
	head    []byte // a rewritten head
	carried uint64 // bytes without meaning, for the log
	status  int    // of the response at hand
	splices int64  // how much is to be moved within the kernel next
	copies  bool   // splicing has failed: nothing more of this is spliced
	closes  bool   // the app says that it is its last one
	err     error  // why reading ended; io.EOF for a FIN
}

type downState uint8

const (
	downHead   downState = iota // in between or within heads
	downBody                    // within a response's body
	downH2                      // frames
	downWS                      // frames of a WebSocket
	downOpaque                  // bytes
	downStray                   // a response that nobody has asked for, until the app closes
)

func (d *down) release() {
	if d.buf != nil {
		d.buf.free()
		d.buf = nil
	}
}

// runDown reads from the app until it or we have ended.
func (c *conn) runDown() {
	d := &c.down
	if c.in.Protocol == TCP {
		d.state = downOpaque
	} else {
		for reads := true; reads; {
			if err := c.app.raw.Read(c.readApp); err != nil {
				d.err = err
			}
			if reads = d.splices > 0 && d.err == nil; reads {
				c.spliceDown(d.splices)
				d.splices = 0
			}
		}
	}
	if d.state == downOpaque && d.err == nil {
		c.carryDown()
		return
	}
	c.appEnded()
	d.release()
}

// readApp takes what has come from the app. It returns false to wait for more.
func (c *conn) readApp(fd uintptr) bool {
	d := &c.down
	for {
		if d.buf == nil {
			d.buf = getBuffer(d.large)
		}
		buf, ok := d.buf.room(max(c.p.cfg.MaxHead, maxAppBlock) + smallBuffer)
		d.buf = buf
		if !ok { // only a head can fill it
			d.err = errTooLarge
			return true
		}
		room := len(buf.b) - buf.w
		n, errno := c.app.receive(fd, buf.b[buf.w:])
		switch {
		case errno == unix.EAGAIN:
			if buf.r == buf.w {
				d.release()
			}
			return false
		case errno != 0:
			d.err = os.NewSyscallError("read", errno)
			return true
		case n == 0:
			d.err = io.EOF
			return true
		}
		d.large = n == room
		buf.w += n
		if !c.fromApp() {
			return true
		}
		if d.splices = c.splicesDown(); d.splices > 0 {
			return true
		}
		if d.large && d.buf.isSmall() {
			d.release()
		}
	}
}

// fromApp passes on what is in the buffer as far as it is understood. It
// returns false when down has to leave its read loop: the connection is over,
// the app cannot be understood (err is set), or the rest is opaque.
func (c *conn) fromApp() bool {
	d := &c.down
	b := d.buf
	for b.r < b.w {
		switch d.state {
		case downOpaque:
			return false
		case downStray:
			if err := c.toClient(b.bytes(), false); err != nil {
				return false
			}
			b.r = b.w
		case downBody:
			if ok := c.passBody(); !ok {
				return false
			}
		case downWS:
			if ok := c.passWebSocket(); !ok {
				return false
			}
		case downH2:
			if c.modeNow() == opaque { // the app spoke HTTP/2 first, but the client does not
				d.state = downOpaque
				return false
			}
			return c.passFrames()
		case downHead:
			rest := b.bytes()
			if d.scanned == 0 {
				switch c.firstWords(rest) {
				case modeH2:
					d.state = downH2
					continue
				case opaque:
					d.state = downOpaque
					return false
				case undecided:
					return true
				}
			}
			from := max(0, d.scanned-len(endOfHead)+1)
			i := bytes.Index(rest[from:], endOfHead)
			if i < 0 {
				if d.scanned = len(rest); d.scanned > c.p.cfg.MaxHead {
					d.err = errTooLarge
					return false
				}
				return true
			}
			d.scanned = 0
			if ok := c.passHead(from + i + len(endOfHead)); !ok {
				return false
			}
		}
	}
	return true
}

func (c *conn) modeNow() mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode
}

// firstWords tells by what the app says at the beginning of a message what it
// speaks. An app that speaks before any request speaks none of our protocols,
// unless it is HTTP/2's SETTINGS, which some servers send at once. up, which may
// hold a few bytes back, is woken.
func (c *conn) firstWords(b []byte) mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode != undecided || len(c.queue) > 0 || c.in.Protocol != Auto {
		if c.mode == undecided {
			return http1
		}
		return c.mode
	}
	if len(b) < frameHeaderLen && b[0] == 0 {
		return undecided
	}
	if len(b) >= frameHeaderLen {
		if f := readFrame(b); f.kind == frameSettings && f.flags == 0 && f.stream == 0 && f.length%6 == 0 && f.length <= 600 {
			c.h2 = c.newH2()
			return modeH2
		}
	}
	c.mode = opaque
	c.recount()
	_ = c.client.SetReadDeadline(time.Now())
	return opaque
}

// passHead passes the response head in the first n bytes of the buffer on, and
// as much of its body as is there. It decides whether this is the last message.
func (c *conn) passHead(n int) bool {
	d := &c.down
	b := d.buf
	raw := b.b[b.r : b.r+n]
	h, err := parseResponse(raw)
	if err != nil {
		d.err = err
		return false
	}
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return false
	}
	if len(c.queue) == 0 { // a 408 of an app that closes an idle connection, for one
		c.last = true
		c.mu.Unlock()
		d.state = downStray
		return true
	}
	req := &c.queue[0]
	tunnel := h.status == http.StatusSwitchingProtocols && req.upgrade || req.connect && h.status/100 == 2
	interim := h.status < 200 && !tunnel
	if interim && h.status == http.StatusSwitchingProtocols {
		c.mu.Unlock()
		d.err = bad("101 to a request that did not ask for it")
		return false
	}
	mark := false
	switch {
	case tunnel && req.wantsWS && h.webSocket:
		c.becomeWebSocket()
		close(c.decided)
	case tunnel && req.h2c != nil && isH2C(raw):
		c.mu.Unlock()
		return c.passUpgradeToH2(n)
	case tunnel:
		c.mode = opaque
		close(c.decided)
	case !interim:
		if req.upgrade || req.connect {
			close(c.decided)
		}
		c.responding = true
		draining := c.p.draining.Load() && len(c.queue) == 1
		if c.last = c.last || h.close || req.close || draining; draining {
			mark = !h.close
		}
	}
	body := h.responseBody(req)
	c.endsWithConn = !interim && !tunnel && body.kind == untilCloseBody
	if c.endless = false; !interim && (body.kind == chunkedBody || body.kind == untilCloseBody) {
		body.endless = c.p.cfg.contentOf(&h)
		c.endless = body.endless != finite
	}
	isWS := c.mode == modeWS
	early := c.endsEarly()
	if !interim {
		if req.status = h.status; req.entry != nil {
			req.entry.firstByte = time.Now()
		}
	}
	c.mu.Unlock()

	if !interim {
		c.in.stats.responded(h.status)
	}
	switch {
	case tunnel:
		b.r += n
		if err := c.toClient(raw, false); err != nil {
			return false
		}
		c.mu.Lock()
		c.recount()
		c.mu.Unlock()
		if d.state = downOpaque; !isWS {
			return false
		}
		d.state = downWS
		if early {
			c.askLastWord()
		}
		return true
	case interim:
		b.r += n
		return c.toClient(raw, false) == nil
	}
	d.state, d.body, d.status = downBody, body, h.status
	// Requests behind it were not read, and their client may ask again elsewhere.
	d.closes = h.close || body.kind == untilCloseBody
	if early {
		c.asked.Store(true)
	}
	if !mark {
		return c.passMessage(n)
	}
	d.head = sayClose(d.head[:0], raw)
	b.r += n
	if err := c.toClient(d.head, body.kind != untilCloseBody); err != nil {
		return false
	}
	return c.passMessage(0)
}

func (c *conn) passBody() bool { return c.passMessage(0) }

// passMessage sends the first n bytes of the buffer, which are a head, and what
// is there of the body, in one write. When the message ends here and is the
// last one, the FIN goes with its last byte.
func (c *conn) passMessage(n int) bool {
	d := &c.down
	b := d.buf
	c.wmu.Lock()
	m, done, err := d.body.advance(b.b[b.r+n : b.w])
	if err != nil {
		c.wmu.Unlock()
		d.err = err
		return false
	}
	last := false
	c.mu.Lock()
	if done {
		if len(c.queue) == 1 && !c.arriving && (c.p.closing.Load() || c.halfClosed) {
			c.last = true
		}
		last = c.last && (len(c.queue) == 1 || d.closes) && c.refusal == nil
	}
	over := c.over
	c.mu.Unlock()
	if over {
		c.wmu.Unlock()
		return false
	}
	if n+m > 0 {
		if err := c.client.send(b.b[b.r:b.r+n+m], last); err != nil {
			c.streaming = false // nobody knows how much of it has gone
			c.wmu.Unlock()
			return false
		}
		b.r += n + m
	}
	c.streaming = d.body.endless != finite && !done
	c.wmu.Unlock()
	c.noteSent(m)
	if done {
		return c.responseEnds(last)
	}
	c.heedLastWord()
	return true
}

// noteSent counts body bytes for the access log.
func (c *conn) noteSent(n int) {
	if c.p.cfg.AccessLog == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 && c.queue[0].entry != nil {
		c.queue[0].entry.sent += uint64(n)
	}
}

// responseEnds takes the answered request from the queue. It returns whether
// there will be more responses.
func (c *conn) responseEnds(last bool) bool {
	c.down.state = downHead
	if last {
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		c.end()
	}
	c.mu.Lock()
	if len(c.queue) == 0 { // the last call has taken it
		c.mu.Unlock()
		return false
	}
	answered := c.queue[0]
	c.pop()
	c.responding, c.endless = false, false
	var refusal *reply
	if len(c.queue) == 0 {
		refusal = c.refusal
	}
	// Between messages the client's half-close or the drain may have come.
	idle := len(c.queue) == 0 && !c.arriving
	leave := idle && refusal == nil && (c.halfClosed || c.p.closing.Load())
	c.recount()
	c.mu.Unlock()
	c.finish(&answered, c.down.status, "", "via_upstream")
	switch {
	case last:
		return false
	case refusal != nil:
		c.in.stats.refuse(refusal.status)
		c.answer(refusal, flagBadRequest, "http1.codec_error")
		return false
	case leave:
		c.close()
		return false
	}
	return true
}

// carryDown passes on what has been read and then everything.
func (c *conn) carryDown() {
	if b := c.down.buf; b != nil {
		c.down.carried = uint64(b.w - b.r)
		if b.r < b.w {
			_ = c.toClient(b.bytes(), false)
		}
		c.down.release()
	}
	c.down.carried += c.carry(c.client, c.app)
}

// appEnded follows the end of what the app sends, or of our understanding it.
func (c *conn) appEnded() {
	d := &c.down
	c.mu.Lock()
	over, responding, due := c.over, c.responding, len(c.queue) > 0
	isWS := c.mode == modeWS
	isH2, streams := c.mode == modeH2, 0
	if isH2 {
		streams = len(c.h2.streams)
	}
	c.mu.Unlock()
	closed := errors.Is(d.err, io.EOF)
	_ = c.app.SetReadDeadline(time.Time{})
	switch {
	case over:
	case d.err == nil, errors.Is(d.err, net.ErrClosed): // the client has gone
		c.close()
	case isH2 && isProtocolError(d.err):
		c.p.complain("the app does not keep to HTTP/2; its clients get a 502", "app", c.appName(), "error", d.err)
		c.failStreams(flagProtocolError, "upstream_reset_before_response_started{protocol_error}", endProtocol)
	case isH2 && streams > 0:
		c.failStreams(flagConnectionTerminated, "upstream_reset_before_response_started{connection_termination}", endTerminated)
	case isH2:
		c.endIdleH2()
		c.close()
	case isWS:
		c.close()
	case responding && d.body.kind == untilCloseBody && closed:
		c.mu.Lock()
		c.over = true
		c.mu.Unlock()
		c.end()
		c.responseEnds(true)
	case responding:
		c.in.stats.truncated.Add(1)
		c.logTruncated()
		c.close()
	case due && (isProtocolError(d.err) || closed && d.scanned > 0): // nonsense, or a part of a head
		c.p.complain("the app's response cannot be understood; its client gets a 502", "app", c.appName(), "error", d.err)
		c.answer(&replyProtocolError, flagProtocolError, "upstream_reset_before_response_started{protocol_error}")
	case due:
		c.answer(&replyTerminated, flagConnectionTerminated, "upstream_reset_before_response_started{connection_termination}")
	default:
		c.close()
	}
	if !over {
		c.app.shut()
	}
}

// isProtocolError tells an app that talks nonsense from one that is gone.
func isProtocolError(err error) bool {
	var b *badHead
	return errors.As(err, &b) || errors.Is(err, errChunkSize)
}

func (c *conn) logTruncated() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return
	}
	// Envoy, too, calls it a protocol error when a response ends before its end.
	c.finish(&c.queue[0], c.down.status, flagProtocolError, "upstream_reset_after_response_started{protocol_error}")
}
