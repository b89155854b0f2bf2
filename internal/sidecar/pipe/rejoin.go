package pipe

import (
	"errors"
	"io"
	"syscall"

	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// An app may close a kept connection after any response. Its clients expect that of a server: one that finds its
// connection ended before any byte of a response repeats its request on another (RFC 9112, 9.3.1), which a response of
// ours would forbid. So the end of the app's connection is passed on as it was, unless up connects to the app again:
// for a request of which nothing has been forwarded, or for one that may be repeated.

// maxRepeated is the longest head that is kept to be repeated, bytes.
const maxRepeated = 2 << 10

// isRepeatableLocked reports whether a request is kept until its response begins, to be repeated on another connection.
// A connection that has answered no request yet shows an app that cannot answer this one. A fast client sends its next
// request before the answered one has left the queue.
func (c *conn) isRepeatableLocked(h *http1.Head, raw []byte) bool {
	answers := c.queue.len() == 0 && c.answered || c.queue.len() == 1 && c.response.begun
	return answers && len(raw) <= maxRepeated && h.Body.Kind == http1.NoBody &&
		h.Tunnel() == 0 && http1.IsIdempotent(h.Method)
}

// leaveToUp reports whether up connects to the app again.
func (d *down) leaveToUp() bool {
	c := d.c
	if d.scanned > 0 || !isEnd(d.err) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mode != modeHTTP1 && c.mode != undecided, c.end.last(), c.halfClosed, c.uploads && c.queue.len() == 0:
		return false
	case c.queue.len() == 0:
		c.rejoins = c.arriving && !c.awaitsFirst || c.client.Unread() > 0
		return c.rejoins
	case c.queue.len() > 1 || c.arriving || c.response.begun || len(c.queue.at(0).head) == 0:
		return false
	}
	c.rejoins = true
	c.client.Wake()
	return true
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || isReset(err) }

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// rejoin releases the connection that the app has ended, and repeats the request that has not been answered. It reports
// whether that was due.
func (u *up) rejoin() bool {
	c := u.c
	c.mu.Lock()
	due := c.rejoins && !c.end.done()
	c.rejoins = false
	c.mu.Unlock()
	if !due {
		return false
	}
	<-c.ended
	_ = c.app.Close()
	c.in.stats.AppOpen.Add(-1)
	c.mu.Lock()
	c.app, c.answered, c.down = nil, false, down{c: c}
	var again []byte
	if c.queue.len() > 0 {
		again = c.queue.at(0).head
		c.queue.at(0).head = nil // once
	}
	c.mu.Unlock()
	switch {
	case again == nil: // batchHead connects
	case u.dial() != nil:
		u.discard()
		c.endBy(u.whyUnreachable())
	default:
		_ = c.app.Send(again, false) // the app's response or its end decides how to continue
	}
	return true
}

// rejoinAfterSend handles a request that could not be sent: if it may be repeated, the app's end, which down sees as
// well, decides that it is. It reports whether up continues.
func (u *up) rejoinAfterSend() bool {
	c := u.c
	c.mu.Lock()
	n := c.queue.len()
	mayRepeat := n > 0 && len(c.queue.at(n-1).head) > 0 && c.response.begun == (n == 2) && !c.end.done()
	c.mu.Unlock()
	if !mayRepeat {
		return false
	}
	<-c.ended
	return u.rejoin()
}
