package pipe

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// endRefused answers an invalid request, after the responses that are due.
func (u *up) endRefused(r *accesslog.Reply, outcome accesslog.Outcome) {
	c := u.c
	partly := u.within
	u.discard()
	if b := u.buf; b != nil {
		b.R = b.W
	}
	u.clearDeadline()
	c.mu.Lock()
	c.end.advance(lastMessage)
	// A request that has been forwarded in part cannot be answered by the app.
	broken := partly && c.queue.len() > 0
	var dropped request
	if broken && c.queue.len() > 1 { // those before it can
		dropped = c.queue.drop()
		broken = false
	}
	waits := c.queue.len() > 0 && !broken
	if waits {
		c.end.refusal = r
		c.arriving = false
		c.recountLocked()
	}
	c.mu.Unlock()
	if !dropped.began.IsZero() {
		dropped.status = r.Status
		c.finish(outcome, []request{dropped})
	}
	if !waits {
		c.in.stats.CountRefused(r.Status)
		c.endFor(cause{onRefused, r, outcome})
	}
}

func (u *up) whyUnreachable() event {
	switch {
	case u.c.overLimit:
		return onOverLimit
	case u.c.restart.timedOut:
		return onRestarting
	}
	return onUnreachable
}

// endsWithin reports whether all that the client has sent and the app has not are first bytes that do not decide, or a
// part of a head: the app answers them as without a sidecar.
func (u *up) endsWithin() bool {
	c := u.c
	if !errors.Is(u.err, io.EOF) || u.buf == nil || u.buf.R == u.buf.W || c.hasEnded() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return u.mode == undecided || u.isAtHead() && c.app != nil && c.queue.len() == 0 && !c.rejoins
}

// clientEnded handles the end of the client's output: a half-close for the app if a response is due, else the end.
func (u *up) clientEnded() {
	c := u.c
	c.mu.Lock()
	c.halfClosed, c.uploads = errors.Is(u.err, io.EOF), false
	closing := c.ws != nil && c.ws.closeSent.Load() // a WebSocket that ends by close frames
	due := c.queue.len() > 0 || c.h2 != nil && len(c.h2.streams) > 0 || c.mode == modeDatabase
	unspoken := c.mode == modeH2 && c.app != nil && !c.h2.down.Spoke // the app may serve anything
	due = (due || unspoken) && !c.end.done() && c.halfClosed
	if due && c.arriving && !unspoken { // of an incomplete request nothing more arrives
		c.arriving = false
		c.recountLocked()
	}
	isCut := isBroken(u.err) && !closing
	if isCut { // nothing reaches the client now
		c.endLocked(onClientGone)
		c.recountLocked()
	}
	c.mu.Unlock()
	switch {
	case c.app == nil:
	case closing:
		u.endWebSocket()
	case due:
		_ = c.app.CloseWrite()
	case isCut: // as the client without a sidecar, which distinguishes a part of an upload from the whole
		_ = c.app.SetLinger(0)
		_ = c.app.SetDeadline(time.Now())
	default:
		c.app.Shut()
	}
	if errors.Is(u.err, syscall.ECONNRESET) {
		c.in.stats.ClientResets.Add(1)
	}
}

// clientTimedOut handles an expired read deadline. It reports whether to read on.
func (u *up) clientTimedOut() bool {
	c := u.c
	if !errors.Is(u.err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	done, mode := c.end.done(), c.mode
	pause := lingerTime
	if c.end.resets {
		pause = stuckTime
	}
	hurries, isUnasked := c.isHurried(), c.queue.len() == 0
	c.mu.Unlock()
	switch {
	case done: // the client does not close: leave, unless it is still reading
		left := c.client.Unsent()
		if left == 0 || left == u.unsent || hurries {
			return false
		}
		u.unsent = left
		_ = c.client.SetReadDeadline(time.Now().Add(pause))
		return true
	case mode == modeWS: // the client has not answered our close frame
		u.endWebSocket()
		return true
	case mode == opaque: // the app spoke first
		_ = c.client.SetReadDeadline(time.Time{})
		u.mode = opaque
		return true
	case u.sniffedEnough():
		return true
	case u.timed && u.mode == modeH2:
		u.clearDeadline()
		u.discard()
		c.h2.endInvalidH2(http2.FloodSlow)
		return true
	case u.timed:
		u.clearDeadline()
		if u.endAwaitFirst() {
			if c.app == nil && c.in.Protocol == Auto && !c.overLimit {
				c.resetUnreached()
				return false
			}
			c.endBy(onClientGone)
			return true
		}
		outcome := accesslog.HeadTimeout
		switch {
		case u.within:
			outcome = accesslog.RequestTimeout
		case c.p.closing.holds() && isUnasked: // as a request that meets the end of its idle connection
			u.discard()
			c.endBy(onIdle)
			c.noteRace()
			return true
		}
		u.endRefused(&replyTimeout, outcome)
		return true
	}
	_ = c.client.SetReadDeadline(time.Time{})
	return true
}
