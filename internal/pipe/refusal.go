package pipe

import "github.com/lastcall-dev/lastcall/internal/accesslog"

// refuse answers what cannot be forwarded, after the responses that are due.
func (c *conn) refuse(r *reply, outcome accesslog.Outcome) {
	partly := c.up.state == upBody
	c.up.state = upDiscard
	if b := c.up.buf; b != nil {
		b.R = b.W
	}
	c.clearDeadline()
	c.mu.Lock()
	c.last = true
	// A request that has been forwarded in part cannot be answered by the app.
	broken := partly && c.queue.len() > 0
	var dropped request
	if broken && c.queue.len() > 1 { // those before it can
		dropped = c.queue.drop()
		broken = false
	}
	due := c.queue.len() > 0
	if due && !broken {
		c.refusal = r
		c.arriving = false
		c.recount()
	}
	responding := c.responding
	c.mu.Unlock()
	if !dropped.began.IsZero() {
		c.finish(&dropped, r.status, outcome)
	}
	switch {
	case due && !broken:
	case broken && responding:
		c.in.stats.refuse(r.status)
		c.mu.Lock()
		for i := range c.queue.len() {
			q := c.queue.at(i)
			c.finish(q, q.status, outcome)
		}
		c.mu.Unlock()
		c.close()
	default:
		c.in.stats.refuse(r.status)
		c.answer(r, outcome)
	}
}

// idle is true when nothing is due on the connection.
func (c *conn) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queue.len() == 0
}

// noteRace counts a request that met the closing of its idle connection. What comes
// after an answer that has said goodbye, the rest of an upload for one, is none.
func (c *conn) noteRace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endedIdle && c.mode != modeH2 { // which looks for a request itself
		c.raceMet()
	}
}

// raceMet counts each connection once. mu is held.
func (c *conn) raceMet() {
	if !c.raced {
		c.raced = true
		c.in.stats.raced.Add(1)
		c.p.changed()
	}
}
