package pipe

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// reader is what both sides have to read with. It holds a buffer only while there is data in it.
type reader struct {
	buf     *tcp.Buffer
	large   bool   // the last read filled its buffer
	copies  bool   // splicing has failed: copy the rest
	scanned int    // bytes of the present head, without its end
	splices int64  // bytes to be moved within the kernel next
	carried uint64 // opaque bytes, for the log
	err     error  // of reading; io.EOF for a FIN
}

func (r *reader) release() {
	if r.buf != nil {
		r.buf.Free()
		r.buf = nil
	}
}

// fill reads once. It returns false to wait for more.
func (r *reader) fill(fd uintptr, from *tcp.Socket) bool {
	buf := r.buf
	room := len(buf.B) - buf.W
	n, errno := from.Receive(fd, buf.B[buf.W:])
	switch {
	case errno == unix.EAGAIN:
		if buf.R == buf.W {
			r.release()
		}
		return false
	case errno != 0:
		r.err = os.NewSyscallError("read", errno)
	case n == 0:
		r.err = io.EOF
	default:
		r.large = n == room
		buf.W += n
	}
	return true
}

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
