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

	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// lingerTime is how long the peer of a WebSocket has for its own close frame.
const lingerTime = time.Second

// upgraded is the client's connection after a 101. The proxy reads from it directly, so bytes that arrived with the
// request are read from the server's buffer first. At the last call both ends of a WebSocket get a close frame.
type upgraded struct {
	net.Conn
	early *bufio.Reader
	x     *exchange

	last      atomic.Bool // the last call has been made
	up        ws.Follower // to the endpoint; used by the reader only
	closeSent bool        // the endpoint has its close frame; used by the reader only

	mu    sync.Mutex // held over writes; guards what follows
	down  ws.Follower
	ended bool // the client has its last frame
}

func (u *upgraded) Read(p []byte) (int, error) {
	for {
		n, err := u.read(p)
		u.x.received.Add(int64(n))
		switch {
		case !u.last.Load():
			u.up.Follow(p[:n], ws.AtClose)
			return n, err
		case u.closeSent:
			// The client's own close frame, or a message that came too late.
			if err != nil {
				return 0, io.EOF
			}
		case !mayEnd(&u.up):
			// A close frame cannot be inserted within a frame. The rest of this frame may be all that follows, so
			// none is inserted within one read either.
			u.up.Follow(p[:n], ws.AtClose)
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
				return n, io.EOF
			}
			return n, nil
		default:
			u.closeSent = true
			_ = u.Conn.SetReadDeadline(time.Now().Add(lingerTime))
			if !u.up.IsClosed() {
				return copy(p, ws.AppendClose(nil, ws.CloseGoingAway, "", u.up.Masked)), nil
			}
		}
	}
}

// mayEnd reports whether a close frame may be inserted, or has passed.
func mayEnd(f *ws.Follower) bool { return f.BetweenFrames() || f.IsClosed() }

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
		return all, nil // nothing follows a close frame
	}
	if n := u.down.Follow(p, u.stop()); u.last.Load() && !u.down.IsLost() {
		p = p[:n]
	}
	n, err := u.Conn.Write(p)
	u.x.sent.Add(int64(n))
	if err != nil {
		return n, err
	}
	if u.last.Load() && mayEnd(&u.down) {
		u.sendClose()
	}
	return all, nil
}

// stop is where a write ends: after the last call, at the next end of a frame.
func (u *upgraded) stop() ws.Stop {
	if u.last.Load() {
		return ws.AtFrame
	}
	return ws.AtClose
}

// lastCall ends the WebSocket, within a frame after its end. It returns the ending for reports.
func (u *upgraded) lastCall() string {
	u.last.Store(true)
	u.x.cut.Store(true)
	_ = u.Conn.SetReadDeadline(time.Now()) // wakes Read
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.ended && mayEnd(&u.down) {
		u.sendClose()
	}
	return "close frame 1001"
}

// sendClose is called with mu held.
func (u *upgraded) sendClose() {
	u.ended = true
	if !u.down.IsClosed() { // the endpoint may have sent one itself
		_ = u.Conn.SetWriteDeadline(time.Now().Add(lingerTime))
		n, _ := u.Conn.Write(ws.AppendClose(nil, ws.CloseGoingAway, "", u.down.Masked))
		u.x.sent.Add(int64(n))
	}
}

func (u *upgraded) CloseWrite() error {
	if cw, ok := u.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return u.Conn.Close()
}
