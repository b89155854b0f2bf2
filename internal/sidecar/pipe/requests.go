package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// batch is the part of the buffer that is forwarded in one write.
type batch struct {
	end     int // in the buffer
	request int // where the last request begins if none of it has been forwarded before; otherwise -1
}

type batchStep uint8

const (
	nextPart  batchStep = iota // with the next bytes in the buffer
	sendBatch                  // it is complete: more bytes must arrive, or the next bytes are not to be forwarded
	sendFirst                  // it is complete; the buffer holds more to forward
	handled                    // the connection ends, or has become HTTP/2
)

// forwardRequests forwards the heads and bodies that have arrived in one write. wait is true if more bytes are needed,
// leave if they are no longer HTTP/1.
func (u *up) forwardRequests() (wait, leave bool) {
	to := batch{end: u.buf.R, request: -1}
	step := nextPart
	for step == nextPart && to.end < u.buf.W {
		switch {
		case u.isAtHead():
			step = u.batchHead(&to)
		case u.within:
			step = u.batchBody(&to)
		default:
			step = sendBatch
		}
	}
	if step == handled {
		return false, false
	}
	err := u.send(&to)
	if u.ends {
		u.requestEnds()
	}
	if err != nil && !u.rejoinAfterSend() {
		u.discard() // the app's response or its end decides how to continue
	}
	return step != sendFirst && u.mode == modeHTTP1, u.mode == opaque
}

// send forwards a batch. Without a connection to the app it is dropped.
func (u *up) send(to *batch) error {
	b := u.buf
	from := b.R
	if b.R = to.end; to.end == from || u.c.app == nil {
		return nil
	}
	return u.c.app.Send(b.B[from:to.end], false)
}

// refuse forwards the batch and answers the request behind it.
func (u *up) refuse(to *batch, r *accesslog.Reply, outcome accesslog.Outcome) batchStep {
	_ = u.send(to)
	u.endRefused(r, outcome)
	return handled
}

// batchBody adds as much of the request body as has arrived.
func (u *up) batchBody(to *batch) batchStep {
	b := u.buf
	if u.expects && !u.bodyBegins() {
		return sendBatch
	}
	n, done, err := u.body.Advance(b.B[to.end:b.W], nil)
	to.end += n
	switch {
	case err != nil:
		if to.request >= 0 { // forward nothing of the request
			to.end = to.request
			u.mode, u.within = modeHTTP1, false
			u.c.mu.Lock()
			if u.c.queue.len() > 0 {
				u.c.queue.drop()
			}
			u.c.arriving, u.c.uploads = true, false // until it is answered
			u.c.recountLocked()
			u.c.mu.Unlock()
		}
		return u.refuse(to, replyFor(err), accesslog.InvalidHTTP1)
	case !done:
		return sendBatch
	}
	u.ends = true
	if to.end < b.W {
		return sendFirst
	}
	return sendBatch
}

// batchHead adds a request head if all of it has arrived.
func (u *up) batchHead(to *batch) batchStep {
	limits := &u.c.p.cfg
	if u.scanned == 0 {
		if u.c.isAnsweredUntilClose() {
			to.end = u.buf.W
			return sendBatch
		}
		if step := u.beforeHead(to); step != nextPart {
			return step
		}
	}
	rest := u.buf.B[to.end:u.buf.W]
	n := http1.HeadLen(rest, u.scanned)
	if n == 0 {
		if r := limits.tooLong(rest); r != nil {
			return u.refuse(to, r, accesslog.HeadersTooLarge)
		}
		if http1.EndsByLF(rest, u.scanned) {
			return u.refuse(to, &replyBadRequest, accesslog.InvalidHTTP1)
		}
		u.scanned = len(rest)
		u.arrives(rest, u.c.p.headTime())
		return sendBatch
	}
	u.scanned = 0
	raw := rest[:n]
	if r := limits.tooLong(raw); r != nil {
		return u.refuse(to, r, accesslog.HeadersTooLarge)
	}
	h, err := http1.ParseRequest(raw)
	for err == nil && h.Upgrade && http1.EqualFold(http1.Field(raw, "upgrade"), "h2c") {
		raw = u.declineH2(to.end, n)
		n = len(raw)
		h, err = http1.ParseRequest(raw)
	}
	if err != nil {
		return u.refuse(to, replyFor(err), accesslog.InvalidHTTP1)
	}
	if h.Fields > limits.MaxFields {
		return u.refuse(to, &replyTooLarge, accesslog.TooManyHeaders)
	}
	if u.c.app == nil && !u.c.hasEnded() && !u.dialFor(&h, raw) {
		return handled
	}
	switch u.admit(&h, raw) {
	case delayed: // it stays in the buffer
		u.paused = true
		return sendBatch
	case discarded:
		u.discard()
		return sendBatch
	case misses:
		if to.end > u.buf.R { // of the request that is repeated: it is lost
			return sendFirst
		}
		_ = u.rejoin()
		return nextPart
	}
	to.request = to.end
	to.end += n
	return nextPart
}

// isAnsweredUntilClose reports whether the response ends with the connection. No other request can follow, so what the
// client sends belongs to the exchange: a stream of Icecast, the input of a container.
func (c *conn) isAnsweredUntilClose() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.response.untilClose && !c.end.done()
}

// declineH2 removes the offer of an upgrade to HTTP/2 (RFC 7540, 3.2; removed in RFC 9113) from a head of n bytes in
// the buffer, as Envoy does: the app responds in HTTP/1.1. It returns the rest of the head.
func (u *up) declineH2(at, n int) []byte {
	b := u.buf
	from, to := http1.FieldLine(b.B[at:at+n], "upgrade")
	copy(b.B[at+from:], b.B[at+to:b.W])
	b.W -= to - from
	return b.B[at : at+n-(to-from)]
}

// beforeHead skips empty lines before a request line (RFC 9112, 2.2), and looks for the preface of HTTP/2, which can
// only begin a connection (RFC 9113, 3.4). Later its first line is a request of HTTP/2.0, which gets a 505: another
// parser in front of this one would still see HTTP/1.1.
func (u *up) beforeHead(to *batch) batchStep {
	b := u.buf
	rest := b.B[to.end:b.W]
	for len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' {
		if to.end > b.R {
			return sendFirst
		}
		b.R += 2
		to.end, rest = b.R, rest[2:]
		u.skipped = true
	}
	switch {
	case len(rest) == 0, len(rest) == 1 && rest[0] == '\r':
		return sendBatch
	case !http2.IsPreface(rest) || u.skipped || u.c.modeNow() != undecided:
		return nextPart
	case len(rest) < len(http2.Preface):
		u.arrives(rest, u.c.p.headTime())
		return sendBatch
	}
	u.becomeH2()
	return handled
}

// dialFor connects to the app for the first request. If that fails, it answers the request and returns false.
func (u *up) dialFor(h *http1.Head, raw []byte) bool {
	u.c.setArriving(true)
	on := onOverLimit
	fits := len(u.buf.B) <= tcp.SmallBuffer && u.c.share.Held() == 0 // the connection's memory has room for the request
	if !fits {
		_ = u.c.p.budget.Hold(&u.c.share, len(u.buf.B), budget.Served)
		fits = !u.c.p.budget.IsFull()
	}
	if fits {
		u.alone = h.Close && h.Body.Kind == http1.NoBody && h.Tunnel() == 0
		if err := u.dial(); err == nil {
			return true
		}
		u.alone = false
		on = u.whyUnreachable()
	}
	u.admit(h, raw)
	u.buf.R = u.buf.W
	u.discard()
	u.c.endBy(on)
	return false
}

// headTime is how long the head of a request may take. While idle connections are closed, its connection counts as
// idle after the idle grace.
func (p *Pipe) headTime() time.Duration {
	if p.closing.holds() {
		return min(p.cfg.HeadTimeout, max(time.Duration(p.idleGrace.Load()), firstRequestTime))
	}
	return p.cfg.HeadTimeout
}

// hurryHead shortens the wait for the rest of a head when the pipe begins to close idle connections.
func (c *conn) hurryHead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	isHTTP1 := c.mode == modeHTTP1 || c.mode == undecided
	if c.arriving && !c.awaitsFirst && isHTTP1 && c.queue.len() == 0 && !c.end.done() {
		_ = c.client.SetReadDeadline(time.Now().Add(c.p.headTime()))
	}
}

// arrives is called when a part of a head has arrived: the connection is busy, and the rest has a deadline.
func (u *up) arrives(part []byte, limit time.Duration) {
	c := u.c
	if len(part) == 0 || u.timed && !u.endAwaitFirst() {
		return
	}
	now := time.Now()
	if u.headBegan.IsZero() {
		u.headBegan = now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode == opaque { // the app has sent first; its deadline wakes up
		return
	}
	u.timed = true
	_ = c.client.SetReadDeadline(now.Add(limit))
	c.arriving = true
	c.recountLocked()
}

func (u *up) clearDeadline() {
	if u.timed {
		u.timed = false
		_ = u.c.client.SetReadDeadline(time.Time{})
	}
}
