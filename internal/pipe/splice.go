package pipe

import (
	"io"

	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

const (
	// spliceAbove is how much of a body or of a WebSocket's frame has to be left for
	// splice(2) to pay, bytes: it costs a pipe and leaving the poller's callback.
	spliceAbove = 256 << 10

	// spliceRest is what is left of it for the buffers, bytes: with its last byte a
	// message ends, which is for who follows it.
	spliceRest = 4 << 10
)

// spliceable is how many of the bytes that are left are better moved within the
// kernel; 0 for none.
func spliceable(left uint64, to, from *socket) int64 {
	if left <= spliceAbove || left>>62 != 0 || to == nil || to.secure != nil || from.secure != nil {
		return 0
	}
	return int64(left - spliceRest)
}

// splicesDown is how much of what the app is sending is moved within the kernel
// next. Nothing of ours is sent to the client meanwhile: it is within a body or a
// frame.
func (c *conn) splicesDown() int64 {
	d := &c.down
	switch {
	case d.buf.r < d.buf.w || d.copies:
	case d.state == downBody && d.body.Kind == http1.LengthBody:
		return spliceable(d.body.Left, c.client, c.app)
	case d.state == downWS && !c.ws.said.Load() && !c.ws.down.IsLost():
		return spliceable(c.ws.down.Left(), c.client, c.app)
	}
	return 0
}

// spliceDown moves n bytes. Why it could move less shows with the next read or
// write; the rest is copied then.
func (c *conn) spliceDown(n int64) {
	d := &c.down
	d.release()
	moved, err := io.CopyN(c.client.TCPConn, c.app.TCPConn, n)
	d.copies = err != nil
	c.wmu.Lock()
	if d.state == downBody {
		d.body.Left -= uint64(moved)
	} else {
		c.ws.down.Skip(uint64(moved))
	}
	c.wmu.Unlock()
	if d.state == downBody {
		c.noteSent(int(moved))
	}
}

// splicesUp is the same of what the client is sending.
func (c *conn) splicesUp() int64 {
	u := &c.up
	switch {
	case u.buf.r < u.buf.w || u.copies:
	case u.state == upBody && u.body.Kind == http1.LengthBody:
		return spliceable(u.body.Left, c.app, c.client)
	case u.state == upWS && !c.ws.up.IsLost():
		return spliceable(c.ws.up.Left(), c.app, c.client)
	}
	return 0
}

// spliceUp moves n bytes, as spliceDown does.
func (c *conn) spliceUp(n int64) {
	u := &c.up
	u.release()
	moved, err := io.CopyN(c.app.TCPConn, c.client.TCPConn, n)
	u.copies = err != nil
	if u.state == upBody {
		u.body.Left -= uint64(moved)
	} else {
		c.ws.up.Skip(uint64(moved))
	}
}
