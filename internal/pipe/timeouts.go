package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
)

// watchTimeouts ends what has taken too long, until the pipe ends. Requests know
// nothing of it: the connections are looked at when the first of them can be due,
// and at most sweeps times within the shortest limit.
func (p *Pipe) watchTimeouts() {
	shortest := time.Duration(0)
	for _, limit := range []time.Duration{p.cfg.IdleTimeout, p.cfg.ResponseTimeout} {
		if limit > 0 && (shortest == 0 || limit < shortest) {
			shortest = limit
		}
	}
	if shortest == 0 {
		return
	}
	timer := time.NewTimer(shortest)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			return
		}
		next := shortest
		for _, c := range p.all() {
			next = min(next, c.endOverdue())
		}
		timer.Reset(max(next, shortest/sweeps))
	}
}

// sweeps is how exact a timeout is: a sixteenth of it.
const sweeps = 16

// endOverdue ends the connection when it has been idle for too long, or when its
// oldest request has. It returns when to look again at the latest.
func (c *conn) endOverdue() (left time.Duration) {
	idleTimeout, responseTimeout := c.p.cfg.IdleTimeout, c.p.cfg.ResponseTimeout
	c.mu.Lock()
	over, works := c.over, c.works()
	idle := time.Since(c.idleSince)
	var age time.Duration
	isDue := c.queue.len() > 0 && c.mode == modeHTTP1
	if isDue {
		age = time.Since(c.queue.at(0).began)
	}
	c.mu.Unlock()
	left = max(idleTimeout, responseTimeout)
	switch {
	case over:
	case isDue && responseTimeout > 0:
		if left = responseTimeout - age; left <= 0 {
			c.endSlowRequest()
			left = responseTimeout
		}
	case !works && idleTimeout > 0:
		if left = idleTimeout - idle; left <= 0 {
			left = idleTimeout
			if c.endIfIdle(idleTimeout) {
				c.in.stats.idleEnded.Add(1)
			}
		}
	}
	return left
}

// endSlowRequest answers the oldest request with a 504 when its response has not
// begun, as Envoy does at its route's timeout, and ends the connection: what the
// app sends later has no place in it any more.
func (c *conn) endSlowRequest() {
	c.mu.Lock()
	if c.over || c.answered || c.queue.len() == 0 || time.Since(c.queue.at(0).began) < c.p.cfg.ResponseTimeout {
		c.mu.Unlock()
		return
	}
	c.over = true
	responding := c.responding
	queued := c.queue.take()
	slow, rest := queued[0], queued[1:]
	status := replyResponseTimeout.status
	if responding {
		status, c.resets = slow.status, c.endsWithConn
	}
	c.mu.Unlock()

	c.in.stats.responseTimeouts.Add(1)
	if !responding {
		c.wmu.Lock()
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime)) // nobody is held up by a client that takes nothing
		_ = c.client.Send(replyResponseTimeout.bytes(slow.isHead), true)
		c.wmu.Unlock()
		c.in.stats.responded(status)
	}
	c.finish(&slow, status, accesslog.ResponseTimeout)
	for i := range rest {
		c.finish(&rest[i], 0, accesslog.ResponseTimeout)
	}
	c.end()
	c.mu.Lock()
	c.recount()
	c.mu.Unlock()
}
