package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// recount brings the pipe's counts up to date with the connection's state. mu
// is held.
func (c *conn) recount() {
	if c.paused {
		c.resumeReading()
	}
	open := !c.over
	busy := open && !c.uncounted() && (c.isTunnel() || c.arriving || c.waitedFor())
	if open == c.counted && busy == c.busy {
		return
	}
	if open != c.counted {
		c.counted = open
		c.p.open.Add(delta(open))
		c.in.stats.open.Add(delta(open))
		if c.surplus {
			c.in.stats.surplus.Add(delta(open))
		}
	}
	if busy != c.busy {
		if c.busy = busy; !busy {
			c.idleSince = time.Now()
		}
		c.p.busy.Add(delta(busy))
		c.in.stats.busy.Add(delta(busy))
	}
	if !open {
		c.settle()
	}
	c.p.changed()
}

// uncounted says whether the connection never counts, whatever it carries.
func (c *conn) uncounted() bool { return c.in.uncounts(c.origin.Port()) }

// saysGoodbye says whether each message to the client is said to be the last.
func (c *conn) saysGoodbye() bool { return c.p.draining.holds() || c.leaves.Load() }

// isTunnel says whether the connection has no messages of HTTP any more. mu is
// held.
func (c *conn) isTunnel() bool { return c.mode == opaque || c.mode == modeWS }

// works says whether something is under way on the connection, whether it counts
// or not. mu is held.
func (c *conn) works() bool {
	return c.isTunnel() || c.arriving || c.queue.len() > 0 || c.h2 != nil && len(c.h2.streams) > 0
}

// waitedFor says whether a request that counts is unanswered. mu is held.
func (c *conn) waitedFor() bool {
	if c.h2 != nil && c.h2.counted > 0 {
		return true
	}
	for i := range c.queue.len() {
		if !c.queue.at(i).quiet {
			return true
		}
	}
	return false
}

func delta(up bool) int64 {
	if up {
		return 1
	}
	return -1
}

// describe names the conversations for the report: none when it is idle, many
// with HTTP/2. mu is held.
func (c *conn) describe() []drain.Conversation {
	if !c.busy {
		return nil
	}
	d := drain.Conversation{Peer: c.client.RemoteAddr().String(), Protocol: "http/1.1"}
	since := c.idleSince
	switch {
	case c.client.IsHandshaking():
		d.Protocol, since = "tls", c.began
	case c.mode == modeH2:
		return c.describeStreams()
	case c.mode == modeWS:
		d.Protocol, since = "websocket", c.began
		d.Request = string(c.up.upgraded)
	case c.mode == opaque:
		d.Protocol, since = "tcp", c.began
		d.Request = string(c.up.upgraded)
		if hello := c.hello.Load(); hello != nil && c.in.tls == nil { // it passes through
			d.Protocol, d.Request = "tls", hello.ServerName
		}
	case c.queue.len() > 0:
		oldest := c.queue.at(0)
		d.Request = string(oldest.line)
		since = oldest.began
	}
	d.Age = drain.Millis(time.Since(since))
	return []drain.Conversation{d}
}
