package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// lingerTime is how long the other side of a WebSocket has for its own close frame.
const lingerTime = time.Second

// Close frames with the status 1001, going away (RFC 6455, sections 5.5.1 and 7.4.1). What
// a client sends is masked, by any key; zeros leave it as it is.
var (
	closeToClient   = []byte{0x88, 2, 0x03, 0xe9}
	closeToEndpoint = []byte{0x88, 0x80 | 2, 0, 0, 0, 0, 0x03, 0xe9}
)

// upgraded is the client's connection after a 101. The proxy reads it directly,
// so what came with the request must be read from the server's buffer first. A
// WebSocket gets a close frame at the last call, on both sides.
type upgraded struct {
	net.Conn
	early *bufio.Reader
	x     *exchange

	last atomic.Bool // the last call has come
	up   frames      // to the endpoint; the reader's
	told bool        // the endpoint has its close frame; the reader's

	mu    sync.Mutex // one write at a time; guards what follows
	down  frames     // to the client
	ended bool       // the client has had its last frame
}

func (u *upgraded) Read(p []byte) (int, error) {
	for {
		n, err := u.read(p)
		u.x.received.Add(int64(n))
		switch {
		case !u.last.Load():
			u.up.pass(p[:n])
			return n, err
		case u.told:
			// The client's own close frame, or what it said meanwhile: too late.
			if err != nil {
				return 0, io.EOF
			}
		case !u.up.between():
			// In the midst of a frame there is no room for another one, nor is there
			// within one read: the rest of it may be all that comes.
			u.up.pass(p[:n])
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
				return n, io.EOF
			}
			return n, nil
		default:
			u.told = true
			_ = u.Conn.SetReadDeadline(time.Now().Add(lingerTime))
			return copy(p, closeToEndpoint), nil
		}
	}
}

func (u *upgraded) read(p []byte) (int, error) {
	if b := u.early.Buffered(); b > 0 {
		return u.early.Read(p[:min(b, len(p))])
	}
	return u.Conn.Read(p)
}

func (u *upgraded) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := len(p)
	if u.ended {
		return all, nil // nothing comes after a close frame
	}
	if u.last.Load() {
		p = p[:u.down.next(p)]
	} else {
		u.down.pass(p)
	}
	n, err := u.Conn.Write(p)
	u.x.sent.Add(int64(n))
	if err != nil {
		return n, err
	}
	if u.last.Load() && u.down.between() {
		u.sayClose()
	}
	return all, nil
}

// lastWord ends the WebSocket: at once where a frame has ended, else after it. It returns
// how.
func (u *upgraded) lastWord() string {
	u.last.Store(true)
	u.x.cut.Store(true)
	_ = u.Conn.SetReadDeadline(time.Now()) // wakes Read
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended && u.down.between() {
		u.sayClose()
	}
	return "close frame 1001"
}

// sayClose is called with mu held.
func (u *upgraded) sayClose() {
	u.ended = true
	if !u.down.closed { // the endpoint may have said so itself
		_ = u.Conn.SetWriteDeadline(time.Now().Add(lingerTime))
		n, _ := u.Conn.Write(closeToClient)
		u.x.sent.Add(int64(n))
	}
}

func (u *upgraded) CloseWrite() error {
	if cw, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return u.Conn.Close()
}

// frames follows where WebSocket frames begin and end (RFC 6455, section 5.2).
type frames struct {
	head   [14]byte
	n      int    // of head that have come
	left   uint64 // of the payload
	closed bool   // a close frame has gone by
}

// between says that no frame has been begun.
func (f *frames) between() bool { return f.n == 0 && f.left == 0 }

// pass takes in all of p.
func (f *frames) pass(p []byte) {
	for len(p) > 0 {
		p = p[f.next(p):]
	}
}

// next takes in what of p belongs to the present frame, or to the next one when none
// has been begun, and says how much that is.
func (f *frames) next(p []byte) int {
	n := 0
	for n < len(p) && f.left == 0 {
		f.head[f.n] = p[n]
		f.n++
		n++
		if f.n < f.headLength() {
			continue
		}
		if f.head[0]&0xf == 8 {
			f.closed = true
		}
		f.left = f.payload()
		f.n = 0
		if f.left == 0 {
			return n
		}
	}
	rest := min(uint64(len(p)-n), f.left)
	f.left -= rest
	return n + int(rest)
}

// headLength is as far as it can be told.
func (f *frames) headLength() int {
	if f.n < 2 {
		return 2
	}
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

func (f *frames) payload() uint64 {
	short := f.head[1] & 0x7f
	size := 0
	switch short {
	case 126:
		size = 2
	case 127:
		size = 8
	default:
		return uint64(short)
	}
	var length uint64
	for _, b := range f.head[2 : 2+size] {
		length = length<<8 | uint64(b)
	}
	return length
}
