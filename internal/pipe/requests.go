package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// batch is the part of the buffer that is forwarded in one write.
type batch struct {
	end     int // in the buffer
	request int // where the last request begins if none of it has been forwarded before; otherwise -1
}

// batchStep is how a batch continues.
type batchStep uint8

const (
	nextPart  batchStep = iota // with what follows in the buffer
	sendBatch                  // it is complete: more bytes must arrive, or what follows is not to be forwarded
	sendFirst                  // it is complete; the buffer holds more to forward
	handled                    // the connection ends, or has become HTTP/2
)

// forwardRequests forwards complete heads and as much of the bodies as has arrived, in one write. wait is true if more
// bytes are needed, leave if they are no longer HTTP/1.
func (c *conn) forwardRequests() (wait, leave bool) {
	u := &c.up
	to := batch{end: u.buf.R, request: -1}
	step := nextPart
	for step == nextPart && to.end < u.buf.W {
		switch u.state {
		case upHead:
			step = c.batchHead(&to)
		case upBody:
			step = c.batchBody(&to)
		default:
			step = sendBatch
		}
	}
	if step == handled {
		return false, false
	}
	if err := c.send(&to); err != nil {
		u.state = upDiscard // the app's response or its end decides how to continue
	}
	return step != sendFirst && (u.state == upHead || u.state == upBody), u.state == upOpaque
}

// send forwards a batch. Without a connection to the app it is dropped.
func (c *conn) send(to *batch) error {
	b := c.up.buf
	from := b.R
	if b.R = to.end; to.end == from || c.app == nil {
		return nil
	}
	return c.app.Send(b.B[from:to.end], false)
}

// refuse forwards the batch and answers what follows it.
func (c *conn) refuse(to *batch, r *accesslog.Reply, outcome accesslog.Outcome) batchStep {
	_ = c.send(to)
	c.endRefused(r, outcome)
	return handled
}

// batchBody adds as much of the request body as has arrived.
func (c *conn) batchBody(to *batch) batchStep {
	b := c.up.buf
	n, done, err := c.up.body.Advance(b.B[to.end:b.W], nil)
	to.end += n
	switch {
	case err != nil:
		if to.request >= 0 { // forward nothing of the request
			to.end = to.request
			c.takeBack()
		}
		return c.refuse(to, replyFor(err), accesslog.InvalidHTTP1)
	case !done:
		return sendBatch
	}
	c.requestEnds()
	return nextPart
}

// batchHead adds a request head if all of it has arrived.
func (c *conn) batchHead(to *batch) batchStep {
	u, limits := &c.up, &c.p.cfg
	if u.scanned == 0 {
		if step := c.beforeHead(to); step != nextPart {
			return step
		}
	}
	rest := u.buf.B[to.end:u.buf.W]
	n := http1.HeadLen(rest, u.scanned)
	if n == 0 {
		if r := limits.tooLong(rest); r != nil {
			return c.refuse(to, r, accesslog.HeadersTooLarge)
		}
		u.scanned = len(rest)
		c.headBegins(rest)
		return sendBatch
	}
	u.scanned = 0
	raw := rest[:n]
	if r := limits.tooLong(raw); r != nil {
		return c.refuse(to, r, accesslog.HeadersTooLarge)
	}
	h, err := http1.ParseRequest(raw)
	if err != nil {
		return c.refuse(to, replyFor(err), accesslog.InvalidHTTP1)
	}
	if h.Fields > limits.MaxFields {
		return c.refuse(to, &replyTooLarge, accesslog.TooManyHeaders)
	}
	if c.app == nil && !c.hasEnded() && !c.dialFor(&h, raw) {
		return handled
	}
	switch c.admit(&h, raw) {
	case delayed: // it stays in the buffer
		u.paused = true
		return sendBatch
	case discarded:
		u.state = upDiscard
		return sendBatch
	}
	to.request = to.end
	to.end += n
	return nextPart
}

// beforeHead skips empty lines before a request line (RFC 9112, 2.2), and looks for the preface of HTTP/2.
func (c *conn) beforeHead(to *batch) batchStep {
	b := c.up.buf
	rest := b.B[to.end:b.W]
	for len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' {
		if to.end > b.R {
			return sendFirst
		}
		b.R += 2
		to.end, rest = b.R, rest[2:]
	}
	switch {
	case len(rest) == 0, len(rest) == 1 && rest[0] == '\r':
		return sendBatch
	case !http2.IsPreface(rest) || !c.isQueueEmpty():
		return nextPart
	case to.end > b.R:
		return sendFirst
	case len(rest) < len(http2.Preface):
		c.headBegins(rest)
		return sendBatch
	}
	c.becomeH2()
	return handled
}

// dialFor connects to the app for the first request. If that fails, it answers the request and returns false.
func (c *conn) dialFor(h *http1.Head, raw []byte) bool {
	c.setArriving(true)
	if err := c.dial(); err == nil {
		return true
	}
	c.admit(h, raw)
	c.up.buf.R = c.up.buf.W
	c.up.state = upDiscard
	c.endBy(c.whyUnreachable(), 0)
	return false
}

// admission is how a request is treated.
type admission uint8

const (
	forwarded admission = iota
	discarded           // the connection is being ended
	delayed             // until there is room in the queue
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
		u.headBegan = time.Time{} // the client is not to blame for the delay
		c.paused, c.arriving = true, false
		return delayed
	}
	isQuiet := counters.IsProbe(h.UserAgent)
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
	// A client that announces the close sends no other request (RFC 9112, 9.6).
	if h.Close && !u.waits {
		c.end.advance(lastMessage)
	}
	if u.waits {
		c.decided = make(chan struct{})
		u.upgraded = append(u.upgraded[:0], q.line...)
		q.h2c = http2.UpgradeSettings(raw)
	}
	if !isQuiet && !c.isIgnored() {
		c.p.arrivals.Add(1)
	}
	c.in.stats.Requests.Add(1)
	if c.arriving = h.Body.Kind != http1.NoBody; c.arriving {
		u.state = upBody
		c.limitRequest()
	} else {
		u.headBegan = time.Time{}
		c.setAfterRequest()
	}
	if c.busy {
		c.p.changed() // an arrival; the counts are the same
	}
	c.recountLocked()
	return forwarded
}

// takeBack removes the request that was admitted last, of which nothing has been forwarded.
func (c *conn) takeBack() {
	c.up.state = upHead
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.len() > 0 {
		c.queue.drop()
	}
	c.arriving = true // until it is answered
	c.recountLocked()
}

// requestEnds is called when all of a request has arrived.
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

// headBegins is called when a part of a head has arrived: the connection is busy, and the rest has a deadline.
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
	if c.mode == opaque { // the app has sent first; its deadline wakes up
		return
	}
	c.up.timed = true
	_ = c.client.SetReadDeadline(now.Add(c.p.cfg.HeadTimeout))
	c.arriving = true
	c.recountLocked()
}

// limitRequest sets the deadline for the body, if there is a limit for whole requests.
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
