package pipe

import (
	"errors"
	"os"
	"time"
)

// A client that announces the close with its first request, which has no body, sends nothing more (RFC 9112, 9.6):
// nothing is read from it until it has its response. So up serves such a connection alone: it runs down itself, if that
// does not take long, and closes the connection without waiting for the client's FIN.

// aloneTime is how long the response may take to begin. Later, or when it does not come in one piece, down and up
// continue in two goroutines: the client may go.
const aloneTime = 50 * time.Millisecond

// answerAlone runs the app side in up's goroutine. It reports whether the client side continues in another one.
func (u *up) answerAlone() (parted bool) {
	c, d := u.c, &u.c.down
	u.release()
	c.holdsNothing()
	_ = c.app.SetReadDeadline(time.Now().Add(aloneTime))
	u.alone, d.inline = false, true
	for d.run() {
		if !d.inline { // woken
			go c.serveDown()
			return true
		}
	}
	if !d.inline { // this goroutine is down's now
		close(c.ended)
		return true
	}
	if u.finished = c.isFinished(); !u.finished {
		c.linger()
	}
	return false
}

// part continues the client side in a goroutine of its own, if down runs in up's; else it returns false.
func (d *down) part() bool {
	if !d.inline {
		return false
	}
	d.inline = false
	_ = d.c.app.SetReadDeadline(time.Time{})
	d.c.ended = make(chan struct{})
	go d.c.up.serveUp()
	return true
}

// partIfLate is part for an error of reading.
func (d *down) partIfLate(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) && d.part() }

// isFinished reports whether nothing can come from the client any longer that a close would answer with a reset. A
// drain waits until its clients have acknowledged everything, for which it needs their sockets.
func (c *conn) isFinished() bool {
	c.mu.Lock()
	answered := c.end.by == &endDrained && !c.end.resets
	c.mu.Unlock()
	return answered && c.in.tls == nil && !c.p.draining.holds() && c.client.Unread() == 0
}
