package tcp

import (
	"errors"
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
	p, err := newPipe()
	if err != nil {
		return 0, err
	}
	m := splicing{}
	defer func() { p.release(m.in > 0) }()
	for moved < n {
		m.in, m.n, m.most = 0, 0, min(n-moved, pipeSize)
		if err := from.WhenReadable(func(fd uintptr) bool {
			done := m.some(int(fd), p.w)
			if m.n == 0 && m.err == nil && isUrgent(fd) {
				m.err = errUrgent
			}
			return done || m.err != nil
		}); err != nil || m.err != nil {
			return moved, errors.Join(err, m.err)
		}
		if m.in = m.n; m.in == 0 {
			return moved, io.EOF
		}
		raw, err := to.poll()
		for err == nil && m.in > 0 {
			m.n, m.most = 0, m.in // n stays 0 if the deadline passes
			err = raw.Write(func(fd uintptr) bool { return m.some(p.r, int(fd)) })
			if err = errors.Join(err, m.err); err != nil {
				err = SendError{err}
			}
			m.in, moved = m.in-m.n, moved+m.n
		}
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// errUrgent is that of splice(2), which does not pass the place of urgent data: it is read. A program may use the byte
// (RFC 9293, 3.8.5) as telnet, FTP and Oracle's clients do, and one that does not gets none.
var errUrgent = errors.New("urgent data")

// isUrgent reports whether the next byte is urgent.
func isUrgent(fd uintptr) bool {
	at, err := unix.IoctlGetInt(int(fd), unix.SIOCATMARK)
	return err == nil && at != 0
}

// splicing is a step of Splice.
type splicing struct {
	most, n int64 // to be moved at most, and moved
	in      int64 // in the pipe
	err     error
}

// some moves the bytes that are ready. It returns false to wait.
func (m *splicing) some(from, to int) bool {
	for {
		n, err := unix.Splice(from, nil, to, nil, int(m.most), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			m.n, m.err = max(n, 0), os.NewSyscallError("splice", err)
			return true
		}
	}
}

type pipe struct{ r, w int }

// pipeSize is the size of a pipe, bytes; the kernel allows everyone as much (fs.pipe-max-size).
const pipeSize = 512 << 10

// sparePipes are empty ones.
var sparePipes = make(chan pipe, 16)

func newPipe() (pipe, error) {
	select {
	case p := <-sparePipes:
		return p, nil
	default:
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, os.NewSyscallError("pipe", err)
	}
	_, _ = unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, pipeSize) // else it stays at 64 KB
	return pipe{ends[0], ends[1]}, nil
}

// release keeps an empty pipe for the next splice, if there are not enough.
func (p pipe) release(hasBytes bool) {
	if !hasBytes {
		select {
		case sparePipes <- p:
			return
		default:
		}
	}
	_, _ = unix.Close(p.r), unix.Close(p.w)
}

// Move forwards from's bytes to to until from ends: by splice(2) if many have come and both are plain, else by a
// buffer. While nothing comes it holds neither a buffer nor splice's two pipes, which take two more descriptors each.
// Urgent data stays urgent. It returns how many bytes, and nil for an orderly end. came, unless nil, is called before
// bytes are forwarded.
func Move(to, from *Socket, came func(n int64)) (moved int64, err error) {
	m := mover{to: to, from: from, came: came, plain: to.tls == nil && from.tls == nil}
	defer m.free()
	if m.plain {
		_ = from.control(func(fd int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
	}
	for {
		m.ready = 0
		if err := from.WhenReadable(m.some); err != nil {
			return m.moved, err
		}
		if m.ready == 0 {
			return m.moved, m.err
		}
		if came != nil {
			came(m.ready)
		}
		n, err := Splice(to, from, m.ready)
		m.moved += n
		if err != nil && !errors.Is(err, errUrgent) {
			return m.moved, err
		}
	}
}

// SendError is an error of the socket that Move sends to.
type SendError struct{ error }

func (e SendError) Unwrap() error { return e.error }

// mover is one direction of a stream.
type mover struct {
	to, from *Socket
	came     func(n int64) // may be nil
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

// some forwards the bytes that have arrived. It returns false to wait for more.
func (m *mover) some(fd uintptr) bool {
	for {
		urgent := m.plain && isUrgent(fd)
		if m.large && m.plain && !urgent {
			if n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ); err == nil && n >= spliceReady {
				m.free()
				m.ready = int64(n)
				return true
			}
		}
		if m.buf == nil {
			m.buf = GetBuffer(m.large)
		}
		into := m.buf.B
		if urgent {
			into = into[:1]
		}
		n, errno := m.from.Receive(fd, into)
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
		if m.came != nil {
			m.came(int64(n))
		}
		var err error
		if urgent {
			err = m.to.send(into[:n], unix.MSG_OOB)
		} else {
			err = m.to.Send(into[:n], false)
		}
		if err != nil {
			m.err = SendError{err}
			return true
		}
		m.moved += int64(n)
		if !m.large && n == len(m.buf.B) {
			m.large = true
			m.free()
		}
	}
}
