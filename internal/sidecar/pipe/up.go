package pipe

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
	"github.com/lastcall-dev/lastcall/internal/wire/ws"
)

// up is the client side. Its fields and methods belong to its goroutine.
type up struct {
	c *conn
	reader
	body      http1.Body
	waits     bool        // this request asks for an upgrade
	ends      bool        // the bytes that are being forwarded are the request's last
	expects   bool        // this request waits for 100 (Continue), and no byte of its body has come
	paused    bool        // nothing is read until the queue has room
	timed     bool        // a deadline for the head or the whole request is set
	headBegan time.Time   // of the present request, if it came in parts
	upgraded  []byte      // the request that became a tunnel; written under mu
	early     ws.Follower // of the frames that came before the answer to an upgrade
	unsent    int         // at the last look after our FIN
	owes      bool        // the app would have been connected to at once, but for the client's first bytes
	alone     bool        // it runs down next, see answerAlone
	finished  bool        // the client has its response, and sends nothing more
	skipped   bool        // the connection began with an empty line

	blockHeld  int  // bytes of an incomplete header block of HTTP/2, besides the buffer
	hasStreams bool // of HTTP/2, at the last frame
}

// discard makes up drop what else the client sends.
func (u *up) discard() { u.mode, u.within = modeOver, false }

// run reads from the client until either side has ended. It reports whether it has, or whether to continue in a new
// goroutine; neither if another one has taken over.
func (u *up) run() (ended, again bool) {
	if u.mode == opaque {
		u.carryUp()
		return true, false
	}
	read := u.readClient
	for u.mode != opaque {
		u.err = nil
		if err := u.c.client.WhenReadable(read); err != nil {
			u.err = err
		}
		if u.c.client.WasWoken(u.err) {
			switch {
			case u.rejoin(), u.paused: // woken to continue
				continue
			case u.account():
				return false, true
			}
			u.endUnfinished()
			continue
		}
		if u.err != nil && !u.clientTimedOut() {
			break
		}
		if u.alone {
			if u.answerAlone() || u.finished {
				return u.finished, false
			}
			continue
		}
		if u.splices > 0 {
			_ = u.splice(&u.body, u.c.app, u.c.client, nil)
		}
	}
	u.dropBlock()
	u.c.holdsNothing()
	if u.endsWithin() {
		u.passAsBytes()
	}
	if u.mode == opaque {
		return false, true
	}
	u.release()
	u.clientEnded()
	return true, false
}

// dropBlock frees a header block that will not be completed.
func (u *up) dropBlock() {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	if u.c.h2 != nil {
		u.c.h2.up.Drop()
	}
	u.blockHeld = 0
}

// readClient handles bytes from the client. It returns false to wait for more, without an empty buffer.
func (u *up) readClient(fd uintptr) bool {
	for {
		if u.paused {
			if u.awaitsRoom() {
				if tcp.IsBroken(fd) {
					u.err = os.NewSyscallError("read", unix.ECONNRESET)
					return true
				}
				_ = u.account()
				return false
			}
			u.paused = false // the buffered bytes come first
			if !u.fromClient() {
				return true
			}
			continue
		}
		if u.buf == nil {
			// Heads are small, and few are forwarded ahead of their responses.
			u.buf = tcp.GetBuffer(u.large && !u.isAtHead())
		}
		if u.buf.IsFull() && !u.hold(u.buf.Grown()) { // a body's is drained, and never full
			u.endUnfinished()
			continue
		}
		buf, ok := u.buf.Room(max(u.c.p.cfg.MaxHead, min(u.c.p.cfg.H2.MaxHeaderBlock, http2.MaxFrame)) + tcp.SmallBuffer)
		u.buf = buf
		if !ok { // only a head can fill it
			u.endRefused(u.c.p.cfg.tooLong(buf.Bytes()), accesslog.HeadersTooLarge)
			continue
		}
		if !u.fill(fd, u.c.client) {
			if u.account() {
				return false
			}
			u.endUnfinished()
			continue
		}
		if u.err != nil {
			return true
		}
		if !u.fromClient() || u.alone {
			return true
		}
		u.dialOwed()
		if u.splicesNext(&u.body, u.c.app, u.c.client) {
			return true
		}
		if u.large && u.buf.Drained() {
			u.release()
		}
	}
}

// awaitsRoom reports whether the next request still has to wait for the queue.
func (u *up) awaitsRoom() bool {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	return u.c.paused
}

// resumeReadingLocked wakes up if the queue has room again or the connection has ended, whose input is discarded. In a
// drain the queue has to be empty: its last response announces the close, and an unread request was not forwarded.
func (c *conn) resumeReadingLocked() {
	room := c.queue.len() <= maxQueued/2 && c.queue.held <= maxQueuedBytes/2 // for many: each time the reader is woken
	if c.p.draining.holds() {
		room = c.queue.len() == 0
	}
	if room || c.end.last() {
		c.paused = false
		c.client.Wake()
	}
}

// fromClient forwards as much of the buffer as is complete. It returns false if up has to leave its read loop.
func (u *up) fromClient() bool {
	b := u.buf
	for b.R < b.W {
		switch u.mode {
		case modeOver:
			u.c.noteRace()
			b.R = b.W
			return true
		case opaque:
			return false
		case undecided:
			switch u.sniff(b.Bytes()) {
			case modeH2:
				u.becomeH2()
				continue
			case modeDatabase:
				if u.becomeDatabase() {
					continue
				}
				u.passAsBytes()
				return false
			case undecided:
				if u.c.speaksHTTP() {
					u.arrives(http1.TrimBlank(b.Bytes()), u.c.p.headTime())
				} else {
					u.arrives(b.Bytes(), min(sniffTime, u.c.p.cfg.HeadTimeout))
				}
				if u.c.modeNow() != opaque {
					return true
				}
				fallthrough // the app has spoken meanwhile
			case opaque:
				u.passAsBytes()
				return false
			}
			if u.mode = modeHTTP1; !u.endAwaitFirst() {
				u.clearDeadline() // the head has its own
			}
		case modeUpgrade:
			if u.decide() {
				return true
			}
		case modeH2:
			if u.forwardFrames() {
				return true
			}
		case modeWS:
			u.forwardWebSocket()
		case modeDatabase:
			if !u.forwardDatabase() {
				return false
			}
		case modeHTTP1:
			if done, leave := u.forwardRequests(); leave {
				return false
			} else if done {
				return true
			}
		}
	}
	return true
}

// dialOwed connects to the app if the client's first bytes are no whole request: it may speak first nevertheless.
func (u *up) dialOwed() {
	if u.owes && u.c.app == nil && !u.c.hasEnded() && u.account() {
		_ = u.dial() // once more for a request, or carryUp ends the connection
	}
	u.owes = false
}

// decide handles what the client has sent behind an upgrade: if the app refuses it, that is the next request. Until the
// app has answered, only bytes that begin no request are forwarded, since an app may need them for its answer; a
// refusal is then the connection's last response, and nothing that follows is forwarded. Others wait; wait is true
// then.
func (u *up) decide() (wait bool) {
	c, b := u.c, u.buf
	c.mu.Lock()
	switch {
	case c.mode == opaque:
		u.mode = opaque
	case c.mode == modeWS:
		if u.mode, u.frames = modeWS, &c.ws.up; c.ahead {
			c.ws.up = u.early
		}
	case c.end.last():
		u.discard()
	case c.decided:
		u.mode = modeHTTP1
	case !c.ahead && http1.MayBeRequest(b.Bytes()):
		c.paused, u.paused, wait = true, true, true
	default:
		if !c.ahead {
			c.ahead, u.early = true, ws.Follower{Masked: true}
		}
		c.mu.Unlock()
		if n := u.early.Follow(b.Bytes(), ws.AtClose); n < b.W-b.R {
			u.early.Lose()
		}
		if err := c.app.Send(b.Bytes(), false); err != nil {
			u.discard()
		}
		b.R = b.W
		return false
	}
	c.mu.Unlock()
	return wait
}
