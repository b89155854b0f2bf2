package pipe

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/tlshello"
)

func (u *up) passAsBytes() {
	c := u.c
	u.clearDeadline()
	u.mode = opaque
	c.mu.Lock()
	isCounted := c.mode == opaque // the app spoke first
	c.mode, c.arriving = opaque, false
	c.recountLocked()
	c.mu.Unlock()
	switch {
	case isCounted:
	case c.hello.Load() != nil && c.in.tls == nil:
		c.noteOpaque(counters.OpaqueTLS)
	default:
		c.noteOpaque(counters.OpaqueUnknown)
	}
	u.dialOwed()
}

// carryUp forwards the bytes that have been read, and then everything.
func (u *up) carryUp() {
	c := u.c
	if b := u.buf; b != nil {
		u.carried += uint64(b.W - b.R)
		if c.app != nil && b.R < b.W {
			c.cameFromClient(int64(b.W - b.R))
			if err := c.app.Send(b.Bytes(), false); err != nil {
				c.client.Shut()
			}
		}
		u.release()
	}
	if c.app == nil {
		c.resetUnreached()
		return
	}
	u.carried += c.carry(c.app, c.client)
	if c.hasEnded() { // read on, so that no reset overtakes our last bytes
		_, _ = io.Copy(io.Discard, c.client)
	}
}

// carryDown forwards the bytes that have been read, and then everything.
func (d *down) carryDown() {
	c := d.c
	if b := d.buf; b != nil {
		d.carried += uint64(b.W - b.R)
		if b.R < b.W {
			if alpn, ok := tlshello.ParseServer(b.Bytes()); ok {
				c.turns.mu.Lock()
				c.turns.chosen = &alpn
				c.turns.mu.Unlock()
			}
			c.cameFromApp(int64(b.W - b.R))
			_ = c.toClient(b.Bytes(), false)
		}
		d.release()
	}
	d.carried += c.carry(c.client, c.app)
}

// appHasEnded reports whether down has returned. Only up may ask.
func (u *up) appHasEnded() bool {
	select {
	case <-u.c.ended:
		return true
	default:
		return false
	}
}

// carry forwards the rest of one direction, and its end as it was: a FIN ends the direction, a reset the connection. It
// returns how many bytes.
func (c *conn) carry(to, from *tcp.Socket) (carried uint64) {
	to.GuardStream()
	came := c.cameFromClient
	if from == c.app {
		came = c.cameFromApp
	}
	for {
		n, err := tcp.Move(to, from, came)
		carried += uint64(n)
		switch {
		case err == nil:
			if from == c.app {
				c.noteAppEnd(nil)
			} else {
				c.turns.set(&c.turns.left, true)
			}
			if from == c.app || !c.up.appHasEnded() { // else both are closed at once
				_ = to.CloseWrite()
			}
			return carried
		case errors.Is(err, os.ErrDeadlineExceeded) && !c.hasEnded():
			_ = from.SetReadDeadline(time.Time{}) // the sniffing's
		case from == c.client && c.turns.is(&c.turns.halved): // after our half-close: the app's end is the answer
			if !c.turns.is(&c.turns.over) && !c.turns.is(&c.turns.alerted) { // else these bytes are its close_notify
				c.mu.Lock()
				c.raceLocked()
				c.mu.Unlock()
			}
			_, _ = io.Copy(io.Discard, c.client)
			return carried
		case isBroken(err) && !c.hasEnded():
			var sending tcp.SendError
			if from == c.app && !errors.As(err, &sending) {
				c.noteAppEnd(err)
			}
			c.passReset(to)
			return carried
		default:
			if from == c.app {
				c.noteAppEnd(err)
			}
			switch {
			case c.isReset(): // a FIN would overtake it
			case c.hasEnded(): // the client has our FIN, and time to answer it
				to.Shut()
			default:
				to.Shut()
				from.Shut()
			}
			return carried
		}
	}
}

// isBroken reports whether a connection has been reset, or has been given up by the kernel.
func isBroken(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// passReset ends both connections of an opaque one with a reset: after a FIN, a part of a transfer would look whole.
// What has been sent to the other side before is delivered first.
func (c *conn) passReset(to *tcp.Socket) {
	c.mu.Lock()
	if c.end.done() {
		c.mu.Unlock()
		return
	}
	c.endLocked(onClientGone)
	c.recountLocked()
	c.mu.Unlock()
	wait, cancel := context.WithTimeout(c.p.ctx, stuckTime)
	defer cancel()
	_ = poll.Until(wait, time.Millisecond, func() bool { return to.Unsent() == 0 })
	c.resetBoth()
}

// resetBoth lets both connections end by a reset, and wakes their goroutines.
func (c *conn) resetBoth() {
	c.mu.Lock()
	both := [...]*tcp.Socket{c.client, c.app}
	c.mu.Unlock()
	for _, s := range both {
		_ = s.SetLinger(0)
		_ = s.SetDeadline(time.Now())
	}
}

// resetUnreached lets the client's connection end by a reset: the app is unreachable, no protocol has a reply for that,
// and a FIN would be an empty answer.
func (c *conn) resetUnreached() {
	if !c.overLimit {
		_ = c.client.SetLinger(0)
	}
}

// splicesNext decides whether the next bytes, which are within a body or frame, move within the kernel.
func (r *reader) splicesNext(body *http1.Body, to, from *tcp.Socket) bool {
	left := uint64(0)
	switch {
	case r.buf.R < r.buf.W || r.copies:
	case r.within && body.Kind == http1.LengthBody:
		left = body.Left
	case r.mode == modeWS && !r.frames.IsLost():
		left = r.frames.Left()
	}
	r.splices = tcp.Spliceable(left, to, from)
	return r.splices > 0
}

// splice moves them. An error shows again with the next read or write; the rest is copied. It holds mu, unless that is
// nil, while it counts them.
func (r *reader) splice(body *http1.Body, to, from *tcp.Socket, mu *sync.Mutex) (moved int64) {
	r.release()
	moved, err := tcp.Splice(to, from, r.splices)
	r.splices, r.copies = 0, err != nil
	if mu != nil {
		mu.Lock()
		defer mu.Unlock()
	}
	if r.within {
		body.Left -= uint64(moved)
	} else {
		r.frames.Skip(uint64(moved))
	}
	return moved
}
