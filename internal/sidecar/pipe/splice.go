package pipe

import (
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// splicesDown is how many of the app's next bytes move within the kernel, within a body or frame: the pipe sends none.
func (d *down) splicesDown() int64 {
	c := d.c
	switch {
	case d.buf.R < d.buf.W || d.copies:
	case d.state == downBody && d.body.Kind == http1.LengthBody:
		return tcp.Spliceable(d.body.Left, c.client, c.app)
	case d.state == downWS && !c.ws.closeSent.Load() && !c.ws.down.IsLost():
		return tcp.Spliceable(c.ws.down.Left(), c.client, c.app)
	}
	return 0
}

// spliceDown moves n bytes. An error shows again with the next read or write; the rest is copied.
func (d *down) spliceDown(n int64) {
	c := d.c
	d.release()
	moved, err := tcp.Splice(c.client, c.app, n)
	d.copies = err != nil
	c.wmu.Lock()
	if d.state == downBody {
		d.body.Left -= uint64(moved)
	} else {
		c.ws.down.Skip(uint64(moved))
	}
	c.wmu.Unlock()
	if d.state == downBody {
		d.noteSent(int(moved))
	}
}

// splicesUp is the same for the client.
func (u *up) splicesUp() int64 {
	c := u.c
	switch {
	case u.buf.R < u.buf.W || u.copies:
	case u.state == upBody && u.body.Kind == http1.LengthBody:
		return tcp.Spliceable(u.body.Left, c.app, c.client)
	case u.state == upWS && !c.ws.up.IsLost():
		return tcp.Spliceable(c.ws.up.Left(), c.app, c.client)
	}
	return 0
}

// spliceUp moves n bytes, as spliceDown does.
func (u *up) spliceUp(n int64) {
	u.release()
	moved, err := tcp.Splice(u.c.app, u.c.client, n)
	u.copies = err != nil
	if u.state == upBody {
		u.body.Left -= uint64(moved)
	} else {
		u.c.ws.up.Skip(uint64(moved))
	}
}
