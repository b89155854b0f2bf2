package pipe

import (
	"bytes"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// passHead passes on the response head in the first n bytes of the buffer, and as much of its body as has arrived.
func (d *down) passHead(n int) bool {
	raw := d.buf.B[d.buf.R : d.buf.R+n]
	h, err := http1.ParseResponse(raw)
	mends := err != nil
	if mends {
		if raw, err = http1.MendResponse(nil, raw); err == nil {
			h, err = http1.ParseResponse(raw)
		}
	}
	if err != nil {
		d.err = err
		return false
	}
	switch d.takeHead(&h) {
	case headSurplus:
		return !d.endIfSurplus()
	case headSwitches:
		d.err = http1.Malformed("101 to a request without an upgrade")
		return false
	case headInterim:
		d.buf.R += n
		return d.c.toClient(raw, false) == nil
	case headTunnel:
		d.buf.R += n
		return d.passTunnelHead(&h, raw)
	case headFinal:
		d.c.in.stats.Responded(h.Status)
		if mends {
			return d.passChangedHead(n, raw)
		}
		return d.passMessage(n)
	case headLast: // which announces the close
		d.c.in.stats.Responded(h.Status)
		d.head = http1.AppendClosing(d.head[:0], raw)
		return d.passChangedHead(n, d.head)
	}
	return false
}

type headKind uint8

const (
	headLate     headKind = iota // the client gets another reply
	headSurplus                  // of a response without a request
	headSwitches                 // 101 to a request without an upgrade
	headInterim                  // 1xx
	headTunnel                   // a tunnel or a WebSocket follows
	headFinal
	headLast // a final one that has to announce the close of the connection
)

// takeHead decides how a response head is treated, and records what follows from it.
func (d *down) takeHead(h *http1.Head) headKind {
	c := d.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.end.phase >= replying:
		return headLate
	case c.queue.len() == 0:
		return headSurplus
	}
	req := c.queue.at(0)
	switch {
	case h.Status == req.tunnel, req.tunnel == http.StatusOK && h.Status/100 == 2:
		c.mode = opaque
		switch {
		case req.wantsWS && h.WebSocket:
			c.mode = modeWS
			c.ws = &webSocket{c: c, up: ws.Follower{Masked: true}}
		case req.tunnel == http.StatusOK:
			c.noteOpaque(counters.OpaqueConnect)
		default:
			c.noteOpaque(counters.OpaqueUpgrade)
		}
		c.decidedLocked()
		req.responded(h.Status)
		return headTunnel
	case h.Status == http.StatusSwitchingProtocols:
		return headSwitches
	case h.Status < 200:
		if h.Status == http.StatusContinue && c.queue.len() == 1 {
			c.awaits100 = false
		}
		return headInterim
	}
	return d.takeFinalHeadLocked(h, req)
}

func (c *conn) decidedLocked() {
	c.decided = true
	if c.paused {
		c.paused = false
		c.client.Wake()
	}
}

// passTunnelHead passes on the head after which the connection is a tunnel or a WebSocket.
func (d *down) passTunnelHead(h *http1.Head, raw []byte) bool {
	c := d.c
	c.in.stats.Responded(h.Status)
	if err := c.toClient(raw, false); err != nil {
		return false
	}
	c.mu.Lock()
	c.recountLocked()
	isEarly := c.endsEarlyLocked()
	c.mu.Unlock()
	if c.ws == nil {
		d.mode = opaque
		return false
	}
	d.mode, d.frames = modeWS, &c.ws.down
	if isEarly {
		c.requestLastWord(true)
	}
	c.tryLastWord() // the last call may have come with the head: nothing else may follow from the app
	return true
}

// takeFinalHeadLocked records a final response, and decides whether it is the connection's last.
func (d *down) takeFinalHeadLocked(h *http1.Head, req *request) headKind {
	c := d.c
	if req.tunnel != 0 { // refused
		c.decidedLocked()
	}
	announces := (c.announcesClose() || c.awaits100 || c.ahead) && c.queue.len() == 1
	if h.Close || req.close || announces {
		c.end.advance(lastMessage)
	}
	framing := h.ResponseBody(req.isHead)
	isUntilClose := framing.Kind == http1.CloseBody
	content := earlyend.Unknown
	if isUntilClose || framing.Kind == http1.ChunkedBody {
		content = earlyend.ContentOf(h, req.isGET(), c.p.cfg.EndlessTypes)
	}
	isSubscription := eventstream.IsSubscription(req.isGET(), h.Status)
	c.response = response{
		begun: true, untilClose: isUntilClose, content: content,
		reconnects: isSubscription && (content == earlyend.Events || content == earlyend.Lines),
	}
	if c.endsEarlyLocked() {
		c.lastWordRequested.Store(true)
	}
	req.responded(h.Status)
	d.within, d.body = true, earlyend.New(framing, content, isSubscription)
	// The app has not read the requests after this one. Their client may repeat them on another connection.
	d.closes = h.Close || isUntilClose
	if announces && !h.Close {
		return headLast
	}
	return headFinal
}

// passChangedHead passes on a head in place of the first n bytes of the buffer, and the buffered part of the body.
func (d *down) passChangedHead(n int, head []byte) bool {
	d.buf.R += n
	if err := d.c.toClient(head, d.body.Kind != http1.CloseBody); err != nil {
		return false
	}
	return d.passMessage(0)
}

func (r *request) responded(status int) {
	if r.status = status; r.entry != nil {
		r.entry.FirstByte = time.Now()
	}
}

// isGET reports whether the request is a GET. All clients that reconnect by themselves send one.
func (r *request) isGET() bool { return bytes.HasPrefix(r.line, []byte("GET ")) }

// passMessage forwards the first n bytes of the buffer, which are a head, and the buffered part of the body, in one
// write. If the message ends here and is the last one, the FIN shares a packet with its last byte.
func (d *down) passMessage(n int) bool {
	c := d.c
	b := d.buf
	c.wmu.Lock()
	m, done, err := d.body.Advance(b.B[b.R+n : b.W]) // m bytes precede an error
	last := false
	c.mu.Lock()
	if done {
		if c.queue.len() == 1 && !c.arriving && (c.p.closing.holds() || c.restart.leaves.Load() || c.halfClosed) {
			c.end.advance(lastMessage)
		}
		// The response to the only request may come before all of its body. Its client may read it only after it has
		// sent everything, so the connection ends no earlier, unless the app ends its own.
		uploadsOn := c.uploads && !c.awaits100 && c.queue.len() == 1
		last = c.end.last() && (c.queue.len() == 1 || d.closes) && c.end.refusal == nil && !uploadsOn
	}
	over := c.end.done()
	c.mu.Unlock()
	if over {
		c.wmu.Unlock()
		return false
	}
	if n+m > 0 {
		if err := c.client.Send(b.B[b.R:b.R+n+m], last); err != nil {
			c.streaming = false // how much of it was sent is unknown
			c.wmu.Unlock()
			return false
		}
		b.R += n + m
	}
	c.streaming = d.body.Content() != earlyend.Unknown && !done && err == nil
	c.wmu.Unlock()
	if err != nil {
		d.err = err
		return false
	}
	d.noteSent(m)
	if done {
		return d.responseEnds(last)
	}
	c.tryLastWord()
	return true
}

func (d *down) noteSent(n int) {
	c := d.c
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

// responseEnds removes the answered request from the queue. It reports whether there will be more responses.
func (d *down) responseEnds(last bool) bool {
	c := d.c
	d.within, d.body = false, earlyend.Body{} // which frees the follower of its events
	if last {
		c.mu.Lock()
		c.endLocked(onAnswered)
		c.mu.Unlock()
		if d.inline {
			c.sendEndAnd(func() {}) // answerAlone continues
		} else {
			c.sendEnd()
		}
	}
	c.mu.Lock()
	if c.queue.len() == 0 { // the last call has taken it
		c.mu.Unlock()
		return false
	}
	answered := [...]request{*c.queue.at(0)}
	c.queue.pop()
	if !c.answered {
		c.noteHTTP()
	}
	c.response, c.answered = response{}, true
	var refusal *accesslog.Reply
	if c.queue.len() == 0 {
		refusal = c.end.refusal
	}
	// Between messages the client's half-close or the drain may have come.
	idle := c.queue.len() == 0 && !c.arriving
	leave := idle && refusal == nil && (c.halfClosed || c.end.last() || c.restart.leaves.Load() || c.p.closing.holds())
	c.recountLocked()
	c.mu.Unlock()
	c.finish(accesslog.ViaUpstream, answered[:])
	switch {
	case last:
		return false
	case refusal != nil:
		c.in.stats.CountRefused(refusal.Status)
		c.endFor(cause{onRefused, refusal, accesslog.InvalidHTTP1})
		return false
	case leave:
		c.endBy(onAnswered)
		return false
	}
	return true
}
