package pipe

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
	"github.com/lastcall-dev/lastcall/internal/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// up is the state of the way from the client to the app; its goroutine's own.
type up struct {
	state     upState
	buf       *tcp.Buffer
	large     bool // the last read filled its buffer
	scanned   int  // bytes of the head at hand that hold no end of it
	body      http1.Body
	splices   int64     // how much is to be moved within the kernel next
	copies    bool      // splicing has failed: nothing more of this is spliced
	waits     bool      // an upgrade has been asked for with this request
	paused    bool      // nothing is read until the queue has room
	timed     bool      // a deadline for the head or the whole request is set
	headBegan time.Time // of the request at hand, when it came in parts
	carried   uint64    // bytes without meaning, for the log
	upgraded  []byte    // the request that became a tunnel
	unsent    int       // what the client had not taken when we looked last, after our end
	err       error     // why reading ended; io.EOF for a FIN
}

type upState uint8

const (
	upSniff   upState = iota // protocol unknown
	upHead                   // in between or within heads
	upBody                   // within a request's body
	upPreface                // the preface of HTTP/2, which the app has accepted
	upH2                     // frames
	upWS                     // frames of a WebSocket
	upDecide                 // an upgrade is asked for: what follows depends on the answer
	upOpaque                 // bytes
	upDiscard                // nothing is forwarded any more
)

func (u *up) release() {
	if u.buf != nil {
		u.buf.Free()
		u.buf = nil
	}
}

// runUp reads from the client until it or we have ended. It returns whether to go
// on in a new goroutine.
func (c *conn) runUp() (again bool) {
	read := c.readClient
	for c.up.state != upOpaque {
		c.up.err = nil
		if err := c.client.Raw.Read(read); err != nil {
			c.up.err = err
		}
		if c.client.WasWoken(c.up.err) {
			if c.up.paused { // woken to read on
				continue
			}
			return true
		}
		if c.up.err != nil && !c.clientPaused() {
			break
		}
		if c.up.splices > 0 {
			c.spliceUp(c.up.splices)
			c.up.splices = 0
		}
	}
	if c.up.state == upOpaque {
		c.carryUp()
		return false
	}
	c.up.release()
	c.clientEnded()
	return false
}

// clientPaused handles a read deadline. It returns whether to read on.
func (c *conn) clientPaused() bool {
	if !errors.Is(c.up.err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	over, turned, isWS := c.over, c.mode == opaque, c.mode == modeWS
	pause := lingerTime
	if c.resets {
		pause = stuckTime
	}
	c.mu.Unlock()
	switch {
	case over: // the client does not close: leave, unless it is still taking what there is for it
		left := c.client.Unsent()
		if left == 0 || left == c.up.unsent {
			return false
		}
		c.up.unsent = left
		_ = c.client.SetReadDeadline(time.Now().Add(pause))
		return true
	case isWS: // the client has not answered our close frame
		c.endWebSocket()
		return true
	case turned: // the app spoke first
		_ = c.client.SetReadDeadline(time.Time{})
		c.up.state = upOpaque
		return true
	case c.up.timed && c.up.state == upH2:
		c.clearDeadline()
		c.up.state = upDiscard
		c.endH2(http2.FloodSlow)
		return true
	case c.up.timed:
		c.clearDeadline()
		if c.forgetFresh() {
			c.close()
			return true
		}
		outcome := accesslog.HeadTimeout
		if c.up.state == upBody {
			outcome = accesslog.RequestTimeout
		}
		c.refuse(&replyTimeout, outcome)
		return true
	}
	_ = c.client.SetReadDeadline(time.Time{})
	return true
}

// readClient takes what has come from the client. It returns false to wait for
// more, without a buffer if there is nothing in it.
func (c *conn) readClient(fd uintptr) bool {
	u := &c.up
	for {
		if u.paused {
			if c.awaitsRoom() {
				if tcp.IsBroken(fd) {
					u.err = os.NewSyscallError("read", unix.ECONNRESET)
					return true
				}
				return false
			}
			u.paused = false // what is in the buffer comes first
			if !c.fromClient() {
				return true
			}
			continue
		}
		if u.buf == nil {
			// Heads are small, and few of them are forwarded ahead of their answers.
			u.buf = tcp.GetBuffer(u.large && u.state != upHead)
		}
		buf, ok := u.buf.Room(max(c.p.cfg.MaxHead, c.p.cfg.H2.LargestHeld()) + tcp.SmallBuffer)
		u.buf = buf
		if !ok { // only a head can fill it
			c.refuse(c.p.cfg.tooLong(buf.Bytes()), accesslog.HeadersTooLarge)
			continue
		}
		room := len(buf.B) - buf.W
		n, errno := c.client.Receive(fd, buf.B[buf.W:])
		switch {
		case errno == unix.EAGAIN:
			if buf.R == buf.W {
				u.release()
			}
			return false
		case errno != 0:
			u.err = os.NewSyscallError("read", errno)
			return true
		case n == 0:
			u.err = io.EOF
			return true
		}
		u.large = n == room
		buf.W += n
		if !c.fromClient() {
			return true
		}
		if u.splices = c.splicesUp(); u.splices > 0 {
			return true
		}
		if u.large && u.buf.Drained() {
			u.release()
		}
	}
}

// awaitsRoom says whether the next request still has to wait for the queue.
func (c *conn) awaitsRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

// resumeReading wakes up, if the queue has room again or the connection has ended: what
// comes then is read and discarded. In a drain the queue has to be empty: its last
// response says goodbye, and what was not read was not forwarded. mu is held.
func (c *conn) resumeReading() {
	room := c.queue.isLow()
	if c.p.draining.holds() {
		room = c.queue.len() == 0
	}
	if room || c.last || c.over {
		c.paused = false
		c.client.Wake()
	}
}

// fromClient forwards what is in the buffer as far as it is understood. It
// returns false when up has to leave its read loop.
func (c *conn) fromClient() bool {
	u := &c.up
	b := u.buf
	for b.R < b.W {
		switch u.state {
		case upDiscard:
			c.noteRace()
			b.R = b.W
			return true
		case upOpaque:
			return false
		case upSniff:
			switch c.sniff(b.Bytes()) {
			case modeH2:
				c.becomeH2()
				continue
			case undecided:
				if c.awaitSniff() {
					return true
				}
				fallthrough
			case opaque:
				c.passAsBytes()
				return false
			}
			u.state = upHead
		case upDecide:
			c.awaitDecision()
		case upPreface:
			if c.takePreface() {
				return true
			}
		case upH2:
			if c.forwardFrames() {
				return true
			}
		case upWS:
			c.forwardWebSocket()
		case upHead, upBody:
			if done, leave := c.forwardRequests(); leave {
				return false
			} else if done {
				return true
			}
		}
	}
	return true
}

// passAsBytes gives up on understanding what the client sends.
func (c *conn) passAsBytes() {
	c.clearDeadline()
	c.up.state = upOpaque
	c.mu.Lock()
	kind := OpaqueUnknown
	switch {
	case c.mode == opaque: // by the app's first word
		kind = opaqueCounted
	case c.hello.Load() != nil && c.in.tls == nil:
		kind = OpaqueTLS
	}
	c.mode, c.arriving = opaque, false
	c.recount()
	c.mu.Unlock()
	c.noteOpaque(kind)
}

// awaitDecision waits until the app has answered an upgrade: what the client
// sends after it is a message or not, as the answer says.
func (c *conn) awaitDecision() {
	select {
	case <-c.decided:
	case <-c.ended:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mode == opaque:
		c.up.state = upOpaque
	case c.mode == modeWS:
		c.up.state = upWS
	case c.mode == modeH2:
		c.up.state = upPreface
	case c.over || c.last:
		c.up.state = upDiscard
	default:
		c.up.state = upHead
	}
}

// carryUp forwards what has been read and then everything.
func (c *conn) carryUp() {
	if b := c.up.buf; b != nil {
		c.up.carried = uint64(b.W - b.R)
		if c.app != nil && b.R < b.W {
			if err := c.app.Send(b.Bytes(), false); err != nil {
				c.client.Shut()
			}
		}
		c.up.release()
	}
	if c.app == nil { // the app refused: no protocol in which to say so
		_ = c.client.CloseWrite()
		return
	}
	c.up.carried += c.carry(c.app, c.client)
	if c.isOver() { // read on, so that no reset overtakes our last bytes
		_, _ = io.Copy(io.Discard, c.client.TCPConn)
	}
}

// clientEnded follows the end of what the client sends. A FIN while a response
// is due is a half-close and is passed on; anything else ends the connection.
func (c *conn) clientEnded() {
	c.mu.Lock()
	c.halfClosed = errors.Is(c.up.err, io.EOF)
	answered := c.ws != nil && c.ws.said.Load() // it ends in its own way
	due := (c.queue.len() > 0 && !c.arriving || c.h2 != nil && len(c.h2.streams) > 0) && !c.over && c.halfClosed
	if errno := syscall.Errno(0); errors.As(c.up.err, &errno) && !answered {
		c.over = true // gone: what the app's end means does not reach it any more
		c.recount()
	}
	c.mu.Unlock()
	switch {
	case c.app == nil:
	case answered:
		c.endWebSocket()
	case due:
		_ = c.app.CloseWrite()
	default:
		c.app.Shut()
	}
	if c.up.err != nil && errors.Is(c.up.err, syscall.ECONNRESET) {
		c.in.stats.clientResets.Add(1)
	}
}
