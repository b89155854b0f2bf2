package pipe

import (
	"bytes"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// forwardRequests forwards complete heads and as much of the bodies as is
// there, in one write. wait is true when more bytes are needed.
func (c *conn) forwardRequests() (wait, leave bool) {
	u := &c.up
	b := u.buf
	pos := b.R
	stop := func(r *reply, outcome accesslog.Outcome) (bool, bool) {
		if pos > b.R && c.app != nil {
			_ = c.app.Send(b.B[b.R:pos], false)
		}
		b.R = pos
		c.endRefused(r, outcome)
		return false, false
	}
	begun := -1 // where the request at hand begins, when none of it has been forwarded
	again := false
scan:
	for pos < b.W {
		if u.state == upBody {
			n, done, err := u.body.Advance(b.B[pos:b.W], nil)
			pos += n
			if err != nil {
				if begun >= 0 { // then it does not have to be
					pos = begun
					c.takeBack()
				}
				return stop(replyFor(err), accesslog.InvalidHTTP1)
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
		rest := b.B[pos:b.W]
		if u.scanned == 0 {
			for len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' { // RFC 9112, 2.2
				if pos > b.R {
					again = true // forward what precedes it first
					break scan
				}
				pos, b.R, rest = pos+2, b.R+2, rest[2:]
			}
			if len(rest) == 0 || len(rest) == 1 && rest[0] == '\r' {
				break
			}
			if http2.IsPreface(rest) && c.isQueueEmpty() {
				if len(rest) < len(http2.Preface) {
					c.headBegins(rest)
					break
				}
				return c.becomeH2()
			}
		}
		from := max(0, u.scanned-len(http1.EndOfHead)+1)
		i := bytes.Index(rest[from:], http1.EndOfHead)
		if i < 0 {
			if r := c.p.cfg.tooLong(rest); r != nil {
				return stop(r, accesslog.HeadersTooLarge)
			}
			u.scanned = len(rest)
			c.headBegins(rest)
			break
		}
		end := from + i + len(http1.EndOfHead)
		u.scanned = 0
		if r := c.p.cfg.tooLong(rest[:end]); r != nil {
			return stop(r, accesslog.HeadersTooLarge)
		}
		h, err := http1.ParseRequest(rest[:end])
		if err != nil {
			return stop(replyFor(err), accesslog.InvalidHTTP1)
		}
		if h.Fields > c.p.cfg.MaxFields {
			return stop(&replyTooLarge, accesslog.TooManyHeaders)
		}
		if c.app == nil && !c.hasEnded() {
			c.setArriving(true)
			if err := c.dial(); err != nil {
				c.admit(&h, rest[:end])
				b.R = b.W
				u.state = upDiscard
				c.endBy(c.whyUnreachable(), 0)
				return true, false
			}
		}
		switch c.admit(&h, rest[:end]) {
		case delayed: // it stays in the buffer
			u.paused = true
			break scan
		case discarded:
			u.state = upDiscard
			break scan
		}
		begun = pos
		pos += end
	}
	if pos > b.R && c.app != nil {
		// When the app does not take it, its answer or its end decides (down).
		if err := c.app.Send(b.B[b.R:pos], false); err != nil {
			u.state = upDiscard
		}
	}
	b.R = pos
	return !again && (u.state == upHead || u.state == upBody), u.state == upOpaque
}

// admission says what becomes of a request.
type admission uint8

const (
	forwarded admission = iota
	discarded           // the connection is being ended
	delayed             // until the queue has room
)

// admit puts a request into the queue before it is forwarded.
func (c *conn) admit(h *http1.Head, raw []byte) admission {
	u := &c.up
	c.clearDeadline()
	line := raw[:min(len(h.Method)+1+len(h.Target), maxLine)]
	holds := len(line)
	if c.p.cfg.AccessLog != nil {
		holds += len(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.last() {
		c.arriving = false
		c.recountLocked()
		return discarded
	}
	if c.queue.isFull(holds) {
		u.headBegan = time.Time{} // that it waits is not the client's fault
		c.paused, c.arriving = true, false
		return delayed
	}
	isQuiet := isQuiet(h.UserAgent)
	u.body = h.Body
	u.waits = h.Upgrade || h.IsConnect
	c.mode, c.awaitsFirst = modeHTTP1, false
	c.growsLocked()
	q := c.queue.push()
	c.queue.hold(holds)
	q.began = time.Now()
	q.isHead, q.connect, q.upgrade, q.close, q.quiet = h.IsHead, h.IsConnect, h.Upgrade, h.Close, isQuiet
	q.wantsWS = h.WebSocket
	q.line = append(q.line, line...)
	q.entry = c.p.newEntry(c, h, raw)
	// Nothing follows a client's close, nor HTTP/1.0's only request (RFC 9112, 9.6).
	if h.Close && !u.waits {
		c.end.advance(lastMessage)
	}
	if u.waits {
		c.decided = make(chan struct{})
		u.upgraded = append(u.upgraded[:0], q.line...)
		q.h2c = h2cSettings(raw)
	}
	if !isQuiet && !c.isIgnored() {
		c.p.arrivals.Add(1)
	}
	c.in.stats.requests.Add(1)
	if c.arriving = h.Body.Kind != http1.NoBody; c.arriving {
		u.state = upBody
		c.limitRequest()
	} else {
		u.headBegan = time.Time{}
		c.setAfterRequest()
	}
	if c.busy {
		c.p.changed() // an arrival, though the counts stay
	}
	c.recountLocked()
	return forwarded
}

// takeBack takes the request that was admitted last out of the queue: nothing of it
// has been forwarded.
func (c *conn) takeBack() {
	c.up.state = upHead
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.len() > 0 {
		c.queue.drop()
	}
	c.arriving = true // its answer is to come
	c.recountLocked()
}

// requestEnds notes that a request has come whole.
func (c *conn) requestEnds() {
	c.clearDeadline()
	c.mu.Lock()
	c.arriving = false
	c.setAfterRequest()
	c.recountLocked()
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
	if len(part) == 0 || c.up.timed && !c.endAwaitFirst() {
		return
	}
	now := time.Now()
	if c.up.headBegan.IsZero() {
		c.up.headBegan = now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == opaque { // the app has spoken first, and set a deadline to say so
		return
	}
	c.up.timed = true
	_ = c.client.SetReadDeadline(now.Add(c.p.cfg.HeadTimeout))
	c.arriving = true
	c.recountLocked()
}

// limitRequest sets the deadline for a body, where there is a limit to the whole
// request.
func (c *conn) limitRequest() {
	limit, began := c.p.cfg.RequestTimeout, c.up.headBegan
	c.up.headBegan = time.Time{}
	if limit == 0 {
		return
	}
	if began.IsZero() {
		began = time.Now()
	}
	c.up.timed = true
	_ = c.client.SetReadDeadline(began.Add(limit))
}

func (c *conn) clearDeadline() {
	if c.up.timed {
		c.up.timed = false
		_ = c.client.SetReadDeadline(time.Time{})
	}
}

func (c *conn) isQueueEmpty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.len() == 0
}
