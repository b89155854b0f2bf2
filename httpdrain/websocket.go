package httpdrain

import (
	"net"
	"strconv"
	"sync"
	"syscall"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// webSocket is a hijacked connection whose frames to the client are followed, so that the last call can
// send a close frame between two messages. It works with every WebSocket library.
type webSocket struct {
	net.Conn
	p *Plane

	mu       sync.Mutex  // guards the fields below; held over writes
	head     int         // bytes of the response head's end that have been written, or headWritten
	frames   ws.Follower // of the written bytes
	isClosed bool        // the last call has sent a close frame: later writes are discarded
	isDue    bool        // the last call waits for the end of a message
}

// headEnd ends a response head.
const headEnd = "\r\n\r\n"

const headWritten = len(headEnd)

func (w *webSocket) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isClosed {
		return len(b), nil // nothing may follow a close frame
	}
	n, err := w.Conn.Write(b)
	w.follow(b[:n])
	if err == nil && w.isDue {
		w.sendClose()
	}
	return n, err
}

// follow skips the response's head, which some libraries write themselves after Hijack.
func (w *webSocket) follow(b []byte) {
	for w.head < headWritten && len(b) > 0 {
		switch b[0] {
		case headEnd[w.head]:
			w.head++
		case headEnd[0]:
			w.head = 1
		default:
			w.head = 0
		}
		b = b[1:]
	}
	w.frames.Follow(b, ws.AtClose)
}

// SyscallConn is for hijackers that use the socket itself.
func (w *webSocket) SyscallConn() (syscall.RawConn, error) { return syscallConn(w.Conn) }

// CloseWrite is for hijackers that close one direction.
func (w *webSocket) CloseWrite() error { return closeWrite(w.Conn) }

// lastCall sends the close frame at the end of the current message. It does not block: a write to a slow
// client may be in progress.
func (w *webSocket) lastCall() string {
	w.p.lingering.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.isDue = true; w.head == headWritten {
			w.sendClose()
		}
	})
	return "close " + strconv.Itoa(ws.CloseAtLastCall)
}

// sendClose is called with mu held.
func (w *webSocket) sendClose() {
	if w.isClosed || !w.frames.BetweenMessages() {
		return
	}
	w.isClosed = true
	_, _ = w.Conn.Write(ws.AppendClose(nil, ws.CloseAtLastCall, drain.MessageLastCall, false))
}
