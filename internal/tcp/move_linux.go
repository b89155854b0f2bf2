package tcp

import (
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// spliceAbove is from how many bytes on splice(2) pays: it costs a pipe and leaving the poller's callback.
	spliceAbove = 256 << 10

	// spliceRest is the number of bytes of a message that are not spliced: the caller has to see its last byte.
	spliceRest = 4 << 10

	// spliceReady is how much must have come for splice(2) to pay in a stream, bytes.
	spliceReady = 16 << 10
)

// Spliceable is how many of the bytes left in a message are better moved within the kernel; 0 for none.
func Spliceable(left uint64, to, from *Socket) int64 {
	if left <= spliceAbove || left>>62 != 0 || to == nil || to.tls != nil || from.tls != nil {
		return 0
	}
	return int64(left - spliceRest)
}

// Splice moves n bytes within the kernel.
func Splice(to, from *Socket, n int64) (moved int64, err error) {
	return io.CopyN(to.TCPConn, from.TCPConn, n)
}

// Move forwards from's bytes to to until from ends: by splice(2) if many have come and both are plain, else by a
// buffer. While nothing comes it holds neither a buffer nor splice's two pipes, which take two more descriptors each. It
// returns how many bytes, and nil for an orderly end.
func Move(to, from *Socket) (moved int64, err error) {
	m := mover{to: to, from: from, plain: to.tls == nil && from.tls == nil}
	defer m.free()
	for {
		m.ready = 0
		if err := from.Raw.Read(m.some); err != nil {
			return m.moved, err
		}
		if m.ready == 0 {
			return m.moved, m.err
		}
		n, err := Splice(to, from, m.ready)
		m.moved += n
		if err != nil {
			return m.moved, err
		}
	}
}

// mover is one direction of a stream.
type mover struct {
	to, from *Socket
	plain    bool
	buf      *Buffer
	large    bool // the last read filled its buffer
	moved    int64
	ready    int64 // bytes to be spliced next
	err      error // why it ended; nil for a FIN
}

func (m *mover) free() {
	if m.buf != nil {
		m.buf.Free()
		m.buf = nil
	}
}

// some forwards what has come. It returns false to wait for more.
func (m *mover) some(fd uintptr) bool {
	for {
		if m.large && m.plain {
			if n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil && n >= spliceReady {
				m.free()
				m.ready = int64(n)
				return true
			}
		}
		if m.buf == nil {
			m.buf = GetBuffer(m.large)
		}
		n, errno := m.from.Receive(fd, m.buf.B)
		switch {
		case errno == syscall.EAGAIN: // wait without a buffer
			m.free()
			return false
		case errno != 0:
			m.err = os.NewSyscallError("read", errno)
			return true
		case n == 0:
			return true
		}
		if m.err = m.to.Send(m.buf.B[:n], false); m.err != nil {
			return true
		}
		m.moved += int64(n)
		if !m.large && n == len(m.buf.B) {
			m.large = true
			m.free()
		}
	}
}
