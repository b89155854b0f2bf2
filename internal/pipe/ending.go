package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/accesslog"
)

// end says goodbye to the client with a FIN, lets go of the app, and leaves up
// to wait for the client's own end. It is the only way in which we end a
// conversation; who calls it has set over.
func (c *conn) end() {
	c.mu.Lock()
	resets := c.resets
	c.mu.Unlock()
	if resets {
		c.endWithReset()
		return
	}
	_ = c.client.CloseWrite()
	c.linger()
}

// linger lets go of the app, and leaves up to wait for the end of a client that
// has our FIN.
func (c *conn) linger() {
	c.shutApp()
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTime))
}

// endWithReset ends a body that has no other end than the connection's: a FIN
// would make the half of it pass for the whole. It is our only reset. It leaves
// when the client's kernel has acknowledged all that was sent (up waits for it).
func (c *conn) endWithReset() {
	_ = c.client.SetLinger(0)
	c.shutApp()
	_ = c.client.SetDeadline(time.Now())
}

// abort ends the connection without a word, as the end of the process would.
func (c *conn) abort() {
	c.mu.Lock()
	c.over = true
	c.resets = c.resets || c.responding && c.endsWithConn
	resets := c.resets
	c.recount()
	c.mu.Unlock()
	if resets {
		_ = c.client.SetLinger(0) // also for the kernel, when the process ends first
	} else {
		c.client.Shut()
	}
	_ = c.client.SetDeadline(time.Now())
	c.shutApp()
}

// shutApp ends the connection to the app, for whoever is not up or down.
func (c *conn) shutApp() {
	c.mu.Lock()
	app := c.app
	c.mu.Unlock()
	if app != nil {
		app.Shut()
	}
}

// idleLeft is how long the connection has to stay idle until it has been for
// idleFor, and whether it is idle.
func (c *conn) idleLeft(idleFor time.Duration) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return idleFor - time.Since(c.idleSince), !c.over && !c.works()
}

// awaitFirst makes a connection that has come while idle ones are closed busy
// for a moment: its first request is on its way. mu is held.
func (c *conn) awaitFirst() {
	c.fresh, c.arriving, c.up.timed = true, true, true
	_ = c.client.SetReadDeadline(time.Now().Add(freshTime))
}

// awaitWord gives a client whose app is not there a moment to say something that
// can be answered. Who waits for the app's first word would wait for ever.
func (c *conn) awaitWord() {
	c.mu.Lock()
	c.fresh, c.up.timed = true, true
	c.mu.Unlock()
	_ = c.client.SetReadDeadline(time.Now().Add(freshTime))
}

// endIfIdle ends the connection if it has been idle for at least idleFor. It
// returns whether it has.
func (c *conn) endIfIdle(idleFor time.Duration) bool {
	said := c.sayEndIfIdle(idleFor)
	if said {
		c.linger()
	}
	return said
}

// sayEndIfIdle is the part of endIfIdle that the client sees.
func (c *conn) sayEndIfIdle(idleFor time.Duration) bool {
	c.mu.Lock()
	idle := !c.over && !c.works() && time.Since(c.idleSince) >= idleFor
	if !idle || c.client.Unread() > 0 { // a request is there already: it is served
		c.mu.Unlock()
		return false
	}
	c.over, c.endedIdle = true, true
	c.recount()
	isH2 := c.mode == modeH2
	c.mu.Unlock()
	if isH2 {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime)) // down may be writing to a client that takes nothing
		c.endIdleH2()
	}
	_ = c.client.CloseWrite()
	return true
}

// endNow is the last call: the conversation is ended as politely as it still can
// be. It returns what it was, for the report, nothing when there was nothing left
// to end; or the last word for which it has to come to a boundary.
func (c *conn) endNow() ([]drain.Conversation, *lastWord) {
	if w := c.askLastWord(false); w != nil {
		return nil, w
	}
	c.mu.Lock()
	if c.over || c.answered {
		c.mu.Unlock()
		return nil, nil
	}
	if c.mode == modeH2 {
		c.mu.Unlock()
		return c.endNowH2()
	}
	was := c.describe()
	var answer *reply
	ending := "503"
	switch {
	case len(was) == 0 && c.queue.len() == 0:
	case c.mode == opaque, c.client.IsHandshaking():
		ending = "fin"
	case c.responding:
		ending = "truncated"
		c.resets = c.endsWithConn
	default:
		answer = &replyLastCall
	}
	if len(was) > 0 {
		was[0].Ending = ending
	}
	c.over = true
	unanswered := c.queue.take()
	isHead := len(unanswered) > 0 && unanswered[0].isHead
	c.mu.Unlock()

	if answer != nil {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		c.wmu.Lock()
		_ = c.client.Send(answer.bytes(isHead), true)
		c.wmu.Unlock()
	}
	for i := range unanswered {
		status := unanswered[i].status
		if answer != nil && i == 0 {
			status = answer.status
		}
		c.finish(&unanswered[i], status, accesslog.LastCall)
	}
	c.end()
	c.mu.Lock() // counted as gone only now that its last word is on the way
	c.recount()
	c.mu.Unlock()
	return was, nil
}

// answer sends a local reply in place of the app's response to the oldest
// request, or to one that was not forwarded, and ends the connection.
func (c *conn) answer(r *reply, outcome accesslog.Outcome) {
	c.mu.Lock()
	if c.over || c.answered {
		c.mu.Unlock()
		return
	}
	c.answered = true
	var answered request
	if n := c.queue.len(); n > 0 {
		answered = *c.queue.at(0)
		c.queue.at(0).told = true
		for i := 1; i < n; i++ { // those after it get no answer
			c.finish(c.queue.at(i), 0, outcome)
		}
	} else {
		answered.entry = c.p.newEntry(c, nil, nil)
	}
	c.last = true
	c.mu.Unlock()

	_ = c.toClient(r.bytes(answered.isHead), true)
	c.in.stats.responded(r.status)
	c.finish(&answered, r.status, outcome)
	c.close()
}

// close ends the connection after its last message.
func (c *conn) close() {
	c.mu.Lock()
	was := c.over
	c.over = true
	c.mu.Unlock()
	if was {
		return
	}
	c.end()
	c.mu.Lock()
	unanswered := c.queue.take()
	c.recount()
	c.mu.Unlock()
	for i := range unanswered { // who ends them for another reason has said so before
		c.finish(&unanswered[i], unanswered[i].status, accesslog.ClientClosed)
	}
}
