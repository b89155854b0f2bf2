package pipe

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
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
