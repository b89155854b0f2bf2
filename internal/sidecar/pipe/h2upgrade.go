package pipe

import (
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// A request with "Upgrade: h2c" (RFC 7540, 3.2; removed in RFC 9113) is forwarded unchanged. An app without support for it
// sends a response of HTTP/1.1. After a 101 the connection is HTTP/2, and the request is its stream 1.

// passUpgradeToH2 passes on the 101 in the first n bytes of the buffer, and makes the connection HTTP/2.
func (d *down) passUpgradeToH2(n int) bool {
	c := d.c
	b := d.buf
	c.wmu.Lock() // no frame may be inserted before the 101
	defer c.wmu.Unlock()
	c.mu.Lock()
	if c.end.done() || c.queue.len() == 0 {
		c.mu.Unlock()
		return false
	}
	req := c.queue.at(0)
	h := c.newH2()
	h.ofClient.Announce(req.h2c)
	h.ofClient.Acknowledge() // by the 101
	h.last = 1
	s := newStream(1, req.began)
	s.line = append(s.line, req.line...)
	s.clientEnded = true
	s.quiet = req.quiet || c.isIgnored()
	if s.entry = req.entry; s.entry != nil {
		s.entry.Protocol = "HTTP/2"
	}
	c.queue.pop()
	c.h2, c.mode = h, modeH2
	c.openStreamLocked(s)
	c.recountLocked()
	c.mu.Unlock()
	c.in.stats.H2.Upgrades.Add(1)
	d.state = downH2
	close(c.decided)
	err := c.client.Send(b.B[b.R:b.R+n], false)
	b.R += n
	return err == nil
}

// takePreface waits for the client's preface after an upgrade, and follows its frames from there on.
func (u *up) takePreface() (wait bool) {
	p := u.buf.Bytes()
	switch {
	case !http2.IsPreface(p):
		u.state = upDiscard
		u.c.endInvalidH2(http2.ErrPreface)
	case len(p) < len(http2.Preface):
		return true
	default:
		u.becomeH2()
	}
	return false
}
