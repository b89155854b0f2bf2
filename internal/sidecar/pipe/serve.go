package pipe

import (
	"errors"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// serve runs a connection from its first byte to its last.
func (c *conn) serve() {
	switch {
	case !c.up.begin():
		c.cleanUp()
	case c.up.mode == opaque: // connecting takes a deep stack, which a tunnel, never idle, would keep
		go c.up.serveUp()
	default:
		c.up.serveUp()
	}
}

// begin prepares for the client's first bytes. It returns false if the connection has ended already.
func (u *up) begin() bool {
	c := u.c
	if c.in.tls != nil && !u.handshake() {
		return false
	}
	switch c.in.Protocol {
	case HTTP:
		u.mode = modeHTTP1 // it recognises the preface of HTTP/2
		if c.overLimit {
			u.awaitRequest()
		}
	case Auto:
		if !c.overLimit && c.in.tls == nil && c.client.Unread() > 0 {
			u.owes = true // the client spoke first, and may have sent a whole request
			return true
		}
		c.setArriving(true) // nothing reads the client's bytes now
		if err := u.dial(); err != nil {
			u.awaitRequest()
		}
		c.setArriving(false)
	default:
		u.mode = c.modeNow()
		if u.dial() != nil {
			c.resetUnreached()
			return false
		}
	}
	return true
}

// serveUp runs the client side to its end, and to the connection's.
func (u *up) serveUp() {
	ended, again := u.run()
	switch {
	case again:
		go u.serveUp()
	case ended:
		if u.c.ended != nil {
			<-u.c.ended
		}
		u.c.cleanUp()
	}
}

func (c *conn) serveDown() {
	if c.down.run() {
		go c.serveDown()
		return
	}
	close(c.ended)
}

// dial connects to the app and starts the app side, unless up is alone.
func (u *up) dial() error {
	c := u.c
	if c.overLimit {
		return errOverLimit
	}
	app, err := u.dialApp()
	defer u.connected()
	if err != nil {
		c.restart.timedOut = errors.Is(err, errRestarting)
		c.in.stats.ConnectFailed.Add(1)
		c.p.warn("app unreachable; its clients get 503", "app", c.appName(), "error", err)
		return err
	}
	c.mu.Lock()
	c.app = app
	c.in.stats.Connected.Add(1)
	c.in.stats.AppOpen.Add(1)
	done := c.end.done()
	c.mu.Unlock()
	if done { // the pipe has been killed meanwhile
		app.Shut()
	}
	if u.alone {
		return nil
	}
	app.SetNoDelay()
	c.ended = make(chan struct{})
	if u.isAtHead() {
		c.p.start(c.serveDown)
	} else {
		go c.serveDown() // it may become a tunnel
	}
	return nil
}

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
	// It is finished if nothing can come from the client any longer that a close would answer with a reset. A drain
	// waits until its clients have acknowledged everything, for which it needs their sockets.
	c.mu.Lock()
	answered := c.end.on == onAnswered && !c.end.resets
	c.mu.Unlock()
	u.finished = answered && c.in.tls == nil && !c.p.draining.holds() && c.client.Unread() == 0
	if !u.finished {
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

// setArriving sets whether something not queued yet makes the connection busy. While idle ones are closed, one without
// a request so far has a moment for its first.
func (c *conn) setArriving(arriving bool) {
	c.mu.Lock()
	c.arriving = arriving || c.awaitsFirst
	c.recountLocked()
	c.mu.Unlock()
	if !arriving && c.p.closing.holds() {
		c.p.endLater(c, firstRequestTime, unreadTime)
	}
}

// cleanUp closes both sockets, after both sides have ended.
func (c *conn) cleanUp() {
	c.mu.Lock()
	if c.end.on == noEvent {
		c.end.on = onClientGone
	}
	c.end.phase = closed
	c.uploads = false
	resets := c.end.resets
	unanswered := c.queue.take()
	if c.h2 != nil {
		c.h2.closeStreamsLocked(accesslog.ClientClosed)
	}
	c.recountLocked()
	c.mu.Unlock()
	c.finish(accesslog.ClientClosed, unanswered)
	c.logOpaque()
	if resets { // without TLS' close_notify
		_ = c.client.CloseClear()
	} else {
		_ = c.client.Close()
	}
	if c.app != nil {
		_ = c.app.Close()
		c.in.stats.AppOpen.Add(-1)
	}
	c.reserved.Close()
	c.up.release()
	c.holdsNothing()
	c.p.remove(c)
	c.p.freeFiles()
}

func (c *conn) isReset() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end.resets
}

// The first goroutines of a connection are those that have served another before, if any wait: their stacks have grown
// already.

// spareWorkers is how many wait for a connection at most. A stack of theirs takes 8 KB, until a garbage collection.
const spareWorkers = 64

// start runs one side of a connection in a goroutine.
func (p *Pipe) start(side func()) {
	select {
	case p.work <- side:
	default:
		go p.runAll(side)
	}
}

// runAll runs it and those that come later, until the pipe ends.
func (p *Pipe) runAll(side func()) {
	for {
		side()
		if p.spare.Add(1) > spareWorkers {
			p.spare.Add(-1)
			return
		}
		select {
		case side = <-p.work:
			p.spare.Add(-1)
		case <-p.ctx.Done():
			return
		}
	}
}
