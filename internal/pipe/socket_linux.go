package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffers are held only while there is something in them: an idle connection
// waits for readability with none. Most messages fit the small size; a body
// that fills it is moved on with the large one.
const (
	smallBuffer = 8 << 10
	largeBuffer = 64 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, largeBuffer)} }}
)

// buffer holds bytes read and not yet passed on: b[r:w].
type buffer struct {
	b    []byte
	r, w int
}

func getBuffer(large bool) *buffer {
	if large {
		return largeBuffers.Get().(*buffer)
	}
	return smallBuffers.Get().(*buffer)
}

func (b *buffer) free() {
	b.r, b.w = 0, 0
	switch len(b.b) {
	case smallBuffer:
		smallBuffers.Put(b)
	case largeBuffer:
		largeBuffers.Put(b)
	}
}

// isSmall says whether there is nothing in it and a larger one would do better.
func (b *buffer) isSmall() bool { return b.r == b.w && len(b.b) < largeBuffer }

func (b *buffer) bytes() []byte { return b.b[b.r:b.w] }

// room makes space for the next read: what is left moves to the front, and a
// full buffer is exchanged for a larger one, up to limit bytes.
func (b *buffer) room(limit int) (*buffer, bool) {
	if b.r == b.w {
		b.r, b.w = 0, 0
	}
	if b.w < len(b.b) {
		return b, true
	}
	if b.r > 0 {
		copy(b.b, b.b[b.r:b.w])
		b.r, b.w = 0, b.w-b.r
		return b, true
	}
	if len(b.b) >= limit {
		return b, false
	}
	bigger := &buffer{}
	if len(b.b) < largeBuffer {
		bigger = getBuffer(true)
	} else {
		bigger.b = make([]byte, 2*len(b.b))
	}
	bigger.w = copy(bigger.b, b.bytes())
	b.free()
	return bigger, true
}

// socket is one TCP connection with what the hot path needs of it: system
// calls without the scheduler's hand-over, which a socket that never blocks
// does not need, and no allocation per call.
//
// receive, send, CloseWrite, Close and move go through TLS where there is any;
// everything else (deadlines, counts of bytes, shut) is the TCP connection's.
type socket struct {
	*net.TCPConn
	raw    syscall.RawConn
	secure *secure // nil: plain; set before the socket is used

	deadline sync.Mutex // guards the deadline for reading
	until    time.Time  // it, as set; zero for none
	nudged   bool       // it has passed for another reason

	// The write under way, guarded by whoever writes (conn says who).
	out     []byte
	outMore bool
	outErr  error
	writeFn func(uintptr) bool
}

func newSocket(c *net.TCPConn) (*socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socket{TCPConn: c, raw: raw}
	s.writeFn = s.writeSome
	return s, nil
}

// send writes all of p. With more, the kernel holds the last segment back until
// the next write or the FIN, so that both travel together.
func (s *socket) send(p []byte, more bool) error {
	if s.secure != nil {
		return s.secure.send(p, more)
	}
	return s.write(p, more)
}

// write is send below TLS.
func (s *socket) write(p []byte, more bool) error {
	s.out, s.outMore, s.outErr = p, more, nil
	if err := s.raw.Write(s.writeFn); err != nil {
		return err
	}
	return s.outErr
}

func (s *socket) writeSome(fd uintptr) bool {
	flags := uintptr(unix.MSG_NOSIGNAL)
	if s.outMore {
		flags |= unix.MSG_MORE
	}
	for len(s.out) > 0 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(&s.out[0])), uintptr(len(s.out)), flags, 0, 0)
		switch errno {
		case 0:
			s.out = s.out[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			s.outErr = os.NewSyscallError("send", errno)
			return true
		}
	}
	return true
}

// CloseWrite sends the FIN, and TLS' close_notify before it (RFC 8446, 6.1). It
// does not wait for a write that is under way.
func (s *socket) CloseWrite() error {
	if s.secure != nil {
		return s.secure.closeWrite()
	}
	return s.TCPConn.CloseWrite()
}

// Close closes the socket, as CloseWrite ends what was sent.
func (s *socket) Close() error {
	if s.secure != nil {
		_ = s.secure.closeWrite()
	}
	return s.TCPConn.Close()
}

// shut ends both directions: whoever waits on the socket wakes up. Unlike Close
// it may be called by anyone at any time: Close waits until nobody is within a
// system call on the descriptor.
func (s *socket) shut() {
	_ = s.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// receive reads into p without waiting. fd is the socket's own, lent by the
// poller's callback. It returns EAGAIN when there is nothing yet, and 0 without an
// error at the end.
func (s *socket) receive(fd uintptr, p []byte) (int, syscall.Errno) {
	if s.secure != nil {
		return s.secure.receive(fd, p)
	}
	return receive(fd, p)
}

// receive reads into p without waiting.
func receive(fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		// recvfrom rather than read: it goes straight to the socket.
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), 0, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// isBroken says whether the connection of a socket that is not read has been reset.
func isBroken(fd uintptr) bool {
	look := []unix.PollFd{{Fd: int32(fd)}}
	_, err := unix.Poll(look, 0)
	return err == nil && look[0].Revents&unix.POLLERR != 0
}

// unsent is how many bytes the peer's kernel has not acknowledged; 0 when the
// socket is closed.
func (s *socket) unsent() int { return s.ioctl(unix.SIOCOUTQ) }

// unread is how many bytes wait to be read.
func (s *socket) unread() int { return s.ioctl(unix.SIOCINQ) }

func (s *socket) ioctl(req uint) (n int) {
	_ = s.raw.Control(func(fd uintptr) {
		n, _ = unix.IoctlGetInt(int(fd), req)
	})
	return n
}

// move carries what from receives to to until from ends: by splice(2) what has
// come in bulk, where both are plain, and by a buffer all else, so that while
// nothing comes it holds neither a buffer nor splice's two pipes, which are two
// more descriptors each. It returns how many bytes, and nil for an orderly end.
func move(to, from *socket) (carried int64, err error) {
	m := mover{to: to, from: from, plain: to.secure == nil && from.secure == nil}
	defer m.free()
	for {
		m.bulk = 0
		if err := from.raw.Read(m.some); err != nil {
			return m.carried, err
		}
		if m.bulk == 0 {
			return m.carried, m.err
		}
		// All of it is there: only to is waited for.
		n, err := io.CopyN(to.TCPConn, from.TCPConn, m.bulk)
		m.carried += n
		if err != nil {
			return m.carried, err
		}
	}
}

// moveBulk is how much must have come for splice(2) to pay in a stream, bytes.
const moveBulk = 16 << 10

// mover is one direction of a stream.
type mover struct {
	to, from *socket
	plain    bool
	buf      *buffer
	large    bool // the last read filled its buffer
	carried  int64
	bulk     int64 // what is to be spliced next
	err      error // why it ended; nil for a FIN
}

func (m *mover) free() {
	if m.buf != nil {
		m.buf.free()
		m.buf = nil
	}
}

// some passes on what has come. It returns false to wait for more.
func (m *mover) some(fd uintptr) bool {
	for {
		if m.large && m.plain {
			if n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil && n >= moveBulk {
				m.free()
				m.bulk = int64(n)
				return true
			}
		}
		if m.buf == nil {
			m.buf = getBuffer(m.large)
		}
		n, errno := m.from.receive(fd, m.buf.b)
		switch {
		case errno == unix.EAGAIN: // wait without a buffer
			m.free()
			return false
		case errno != 0:
			m.err = os.NewSyscallError("read", errno)
			return true
		case n == 0:
			return true
		}
		if m.err = m.to.send(m.buf.b[:n], false); m.err != nil {
			return true
		}
		m.carried += int64(n)
		if !m.large && n == len(m.buf.b) {
			m.large = true
			m.free()
		}
	}
}
