package open

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// poller has the connections.
type poller struct {
	epoll   int
	request []byte
	conns   map[int32]*conn
	idle    []*conn // the one that waits longest first, so that all have their turn
	events  []unix.EpollEvent
}

// conn is one connection, with one request at a time.
type conn struct {
	fd     int
	due    time.Time
	answer [4 << 10]byte
	read   int
}

func connect(o Options) (*poller, error) {
	p := &poller{
		request: fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", o.Path, o.Port),
		conns:   map[int32]*conn{}, events: make([]unix.EpollEvent, o.Connections),
	}
	var err error
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("open load: epoll: %w", err)
	}
	for range o.Connections {
		if err := p.dial(o.Port); err != nil {
			p.close()
			return nil, fmt.Errorf("open load: connect to port %d: %w", o.Port, err)
		}
	}
	return p, nil
}

func (p *poller) dial(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c := &conn{fd: fd}
	p.conns[int32(fd)] = c
	p.idle = append(p.idle, c)
	return errors.Join(
		unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}),
		unix.SetNonblock(fd, true),
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}),
	)
}

// warmUp makes one request on each connection: some proxies connect to the app with the first one, which is not what a
// connection that is kept alive is about.
func (p *poller) warmUp(limit time.Time) error {
	for range p.conns {
		if err := p.ask(time.Now()); err != nil {
			return err
		}
		for len(p.idle) < len(p.conns) {
			if _, err := p.answers(time.Until(limit), nil); err != nil {
				return err
			}
			if time.Now().After(limit) {
				return errors.New("open load: a first request was not answered")
			}
		}
	}
	return nil
}

func (p *poller) close() {
	for _, c := range p.conns {
		_ = unix.Close(c.fd)
	}
	_ = unix.Close(p.epoll)
}

func (p *poller) free() bool { return len(p.idle) > 0 }

// ask makes a request on a free connection.
func (p *poller) ask(due time.Time) error {
	c := p.idle[0]
	p.idle = append(p.idle[:0], p.idle[1:]...)
	c.due, c.read = due, 0
	if n, err := unix.Write(c.fd, p.request); err != nil || n != len(p.request) {
		return fmt.Errorf("open load: ask: %d of %d bytes: %w", n, len(p.request), err)
	}
	return nil
}

// answers waits for some, no longer than that, and appends the latencies of those that are complete.
func (p *poller) answers(wait time.Duration, latencies []time.Duration) ([]time.Duration, error) {
	timeout := unix.NsecToTimespec(wait.Nanoseconds())
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT2,
		uintptr(p.epoll), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno == unix.EINTR {
		return latencies, nil
	}
	if errno != 0 {
		return nil, fmt.Errorf("open load: epoll_pwait2: %w", errno)
	}
	for _, event := range p.events[:n] {
		c := p.conns[event.Fd]
		complete, err := c.receive()
		if err != nil {
			return nil, fmt.Errorf("open load: answer: %w", err)
		}
		if complete {
			latencies = append(latencies, time.Since(c.due))
			p.idle = append(p.idle, c)
		}
	}
	return latencies, nil
}

func (c *conn) receive() (complete bool, err error) {
	n, err := unix.Read(c.fd, c.answer[c.read:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, io.ErrUnexpectedEOF // or the answer is longer than its buffer
	}
	c.read += n
	return whole(c.answer[:c.read])
}

// whole reports whether it is all of a response.
func whole(answer []byte) (bool, error) {
	head, body, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !ok {
		return false, nil
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) {
		line, _, _ := bytes.Cut(head, []byte("\r\n"))
		return false, fmt.Errorf("not 200: %q", line)
	}
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if len(name) == len("content-length") && bytes.EqualFold(name, []byte("content-length")) {
			length, err := strconv.Atoi(string(bytes.TrimSpace(value)))
			if err != nil || len(body) > length {
				return false, fmt.Errorf("%d bytes of a body, %q", len(body), line)
			}
			return len(body) == length, nil
		}
	}
	return false, errors.New("it has no Content-Length")
}
