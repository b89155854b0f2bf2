package pipe

import (
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// passHead passes the response head in the first n bytes of the buffer on, and
// as much of its body as is there. It decides whether this is the last message.
func (c *conn) passHead(n int) bool {
	d := &c.down
	b := d.buf
	raw := b.B[b.R : b.R+n]
	h, err := http1.ParseResponse(raw)
	if err != nil {
		d.err = err
		return false
	}
	c.mu.Lock()
	if c.end.phase >= replying {
		c.mu.Unlock()
		return false
	}
	if c.queue.len() == 0 { // a 408 of an app that closes an idle connection, for one
		c.end.advance(lastMessage)
		c.mu.Unlock()
		d.state = downStray
		return true
	}
	req := c.queue.at(0)
	tunnel := h.Status == http.StatusSwitchingProtocols && req.upgrade || req.connect && h.Status/100 == 2
	interim := h.Status < 200 && !tunnel
	if interim && h.Status == http.StatusSwitchingProtocols {
		c.mu.Unlock()
		d.err = http1.Malformed("101 to a request that did not ask for it")
		return false
	}
	mark := false
	switch {
	case tunnel && req.wantsWS && h.WebSocket:
		c.becomeWebSocketLocked()
		close(c.decided)
	case tunnel && req.h2c != nil && isH2C(raw):
		c.mu.Unlock()
		return c.passUpgradeToH2(n)
	case tunnel:
		c.mode = opaque
		close(c.decided)
		if req.connect {
			c.noteOpaque(OpaqueConnect)
		} else {
			c.noteOpaque(OpaqueUpgrade)
		}
	case !interim:
		if req.upgrade || req.connect {
			close(c.decided)
		}
		c.response.begun = true
		draining := c.announcesClose() && c.queue.len() == 1
		if h.Close || req.close || draining {
			c.end.advance(lastMessage)
		}
		mark = draining && !h.Close
	}
	body := body{Body: h.ResponseBody(req.isHead)}
	c.response.untilClose = !interim && !tunnel && body.Kind == http1.CloseBody
	if !interim && (body.Kind == http1.ChunkedBody || body.Kind == http1.CloseBody) {
		body.content = c.p.cfg.contentOf(&h, req)
		isSubscription := req.isGet() && h.Status == http.StatusOK
		if body.content == events {
			body.events = eventstream.New(isSubscription)
		}
		c.response.reconnects = isSubscription && (body.content == events || body.content == lines)
	}
	c.response.content = body.content
	isWS := c.mode == modeWS
	early := c.endsEarlyLocked()
	if !interim {
		if req.status = h.Status; req.entry != nil {
			req.entry.FirstByte = time.Now()
		}
	}
	c.mu.Unlock()

	if !interim {
		c.in.stats.responded(h.Status)
	}
	switch {
	case tunnel:
		b.R += n
		if err := c.toClient(raw, false); err != nil {
			return false
		}
		c.mu.Lock()
		c.recountLocked()
		c.mu.Unlock()
		if d.state = downOpaque; !isWS {
			return false
		}
		d.state = downWS
		if early {
			c.requestLastWord(true)
		}
		return true
	case interim:
		b.R += n
		return c.toClient(raw, false) == nil
	}
	d.state, d.body, d.status = downBody, body, h.Status
	// Requests behind it were not read, and their client may ask again elsewhere.
	d.closes = h.Close || body.Kind == http1.CloseBody
	if early {
		c.lastWordRequested.Store(true)
	}
	if !mark {
		return c.passMessage(n)
	}
	d.head = http1.AppendClosing(d.head[:0], raw)
	b.R += n
	if err := c.toClient(d.head, body.Kind != http1.CloseBody); err != nil {
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
	m, done, err := d.body.advance(b.B[b.R+n : b.W])
	if err != nil {
		c.wmu.Unlock()
		d.err = err
		return false
	}
	last := false
	c.mu.Lock()
	if done {
		if c.queue.len() == 1 && !c.arriving && (c.p.closing.holds() || c.restart.leaves.Load() || c.halfClosed) {
			c.end.advance(lastMessage)
		}
		last = c.end.last() && (c.queue.len() == 1 || d.closes) && c.end.refusal == nil
	}
	over := c.end.done()
	c.mu.Unlock()
	if over {
		c.wmu.Unlock()
		return false
	}
	if n+m > 0 {
		if err := c.client.Send(b.B[b.R:b.R+n+m], last); err != nil {
			c.streaming = false // nobody knows how much of it has gone
			c.wmu.Unlock()
			return false
		}
		b.R += n + m
	}
	c.streaming = d.body.content != finite && !done
	c.wmu.Unlock()
	c.noteSent(m)
	if done {
		return c.responseEnds(last)
	}
	c.tryLastWord()
	return true
}

// noteSent counts body bytes for the access log.
func (c *conn) noteSent(n int) {
	if c.p.cfg.AccessLog == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue.len() == 0 {
		return
	}
	if e := c.queue.at(0).entry; e != nil {
		e.Sent += uint64(n)
	}
}

// responseEnds takes the answered request from the queue. It returns whether
// there will be more responses.
func (c *conn) responseEnds(last bool) bool {
	c.down.state, c.down.body.events = downHead, nil
	if last {
		c.mu.Lock()
		if c.end.advance(ended); c.end.by == nil {
			c.end.by = &endDrained
		}
		c.mu.Unlock()
		c.sendEnd()
	}
	c.mu.Lock()
	if c.queue.len() == 0 { // the last call has taken it
		c.mu.Unlock()
		return false
	}
	answered := *c.queue.at(0)
	c.queue.pop()
	c.response = response{}
	var refusal *reply
	if c.queue.len() == 0 {
		refusal = c.end.refusal
	}
	// Between messages the client's half-close or the drain may have come.
	idle := c.queue.len() == 0 && !c.arriving
	leave := idle && refusal == nil && (c.halfClosed || c.restart.leaves.Load() || c.p.closing.holds())
	c.recountLocked()
	c.mu.Unlock()
	c.finish(&answered, c.down.status, accesslog.ViaUpstream)
	switch {
	case last:
		return false
	case refusal != nil:
		c.in.stats.refuse(refusal.status)
		e := same(refusal, accesslog.InvalidHTTP1)
		c.endBy(&e, 0)
		return false
	case leave:
		c.endBy(&endDrained, 0)
		return false
	}
	return true
}
