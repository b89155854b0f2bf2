package draintest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// client is one scripted client in progress. p.mu guards it.
type client struct {
	p *Plane
	Client

	open     bool
	inFlight *Request      // in flight; for an opaque connection, itself
	since    time.Duration // when it became idle
	conn     int           // the number of its connection: an event to close belongs to one
	goes     bool          // it closes its connection when no request is in flight
}

// join adds a client's events to the agenda. It panics if a request comes before its connection or before the response
// to the previous one.
func (p *Plane) join(c *client) {
	p.clients = append(p.clients, c)
	p.agenda.add(c.At, func() {
		switch {
		case len(c.Requests) > 0 && c.Requests[0].At == c.At: // ask connects
		case c.connect():
			c.closeWhenIdle()
		case len(c.Requests) == 0:
			p.record(c, "", Refused)
		}
	})
	last := c.At
	for i := range c.Requests {
		q := &c.Requests[i]
		if q.At < last {
			panic(fmt.Sprintf("draintest: %s asks %q at %v, but is not free to before %v", c.Peer, q.Line, q.At, last))
		}
		p.agenda.add(q.At, func() { c.ask(q) })
		last = q.At + q.Takes
	}
	if c.Leaves != 0 {
		last = c.Leaves
	}
	if last < Forever {
		p.agenda.add(last, func() { c.leave() })
	}
}

func (c *client) connect() bool {
	if c.open {
		return true
	}
	if c.p.refusing || c.p.over {
		return false
	}
	c.open, c.since = true, c.p.now
	c.conn++
	c.p.arrivals++
	if c.Protocol == "tcp" {
		c.inFlight = &Request{At: c.p.now}
	}
	c.p.changed()
	return true
}

func (c *client) ask(q *Request) {
	if !c.connect() {
		c.p.record(c, q.Line, Refused)
		return
	}
	c.inFlight = q
	c.p.arrivals++
	c.p.changed()
	closes := c.p.draining // for a head that is sent at once
	conn := c.conn
	c.p.agenda.add(c.p.now+q.Takes, func() {
		if c.open && c.inFlight == q && c.conn == conn {
			c.answered(closes || !q.Streams && c.p.draining)
		}
	})
}

// answered ends the request and, if the response has Connection: close, the connection.
func (c *client) answered(closes bool) {
	c.p.record(c, c.inFlight.Line, Answered)
	c.inFlight, c.since = nil, c.p.now
	if c.p.changed(); closes || c.goes {
		c.close()
		return
	}
	c.closeWhenIdle()
}

// leave closes the connection from the client's side, after the response.
func (c *client) leave() {
	if c.goes = true; !c.open {
		return
	}
	if c.inFlight != nil && c.Protocol == "tcp" {
		c.p.record(c, "", Answered)
		c.inFlight = nil
	}
	if c.inFlight == nil {
		c.close()
	}
}

// closeWhenIdle closes the connection when it has been idle for as long as CloseIdle allows.
func (c *client) closeWhenIdle() {
	limit := c.p.closeIdle
	if !c.open || c.inFlight != nil || limit < 0 {
		return
	}
	conn, since := c.conn, c.since
	due := func() {
		if c.open && c.inFlight == nil && c.conn == conn && c.since == since && c.p.closeIdle >= 0 {
			c.close()
		}
	}
	if c.p.now-c.since >= limit {
		due()
		return
	}
	c.p.agenda.add(c.since+limit, due)
}

func (c *client) close() {
	c.open = false
	c.p.changed()
}

// end cuts the connection, busy or not.
func (c *client) end(how Way) {
	if c.inFlight != nil {
		c.p.record(c, c.inFlight.Line, how)
		c.inFlight = nil
	}
	c.close()
}

func (c *client) conversation(ending string) drain.Conversation {
	return drain.Conversation{
		Peer: c.Peer, Protocol: c.Protocol, Request: c.inFlight.Line,
		Age: drain.Millis(c.p.now - c.inFlight.At), Ending: ending,
	}
}

// busy returns the clients with a request in flight, the oldest first.
func (p *Plane) busy() []*client {
	var out []*client
	for _, c := range p.clients {
		if c.open && c.inFlight != nil {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b *client) int { return cmp.Compare(a.inFlight.At, b.inFlight.At) })
	return out
}

func (p *Plane) activity() drain.Activity {
	a := drain.Activity{Known: true, Arrivals: p.arrivals, OpaqueEnds: p.opaqueEnds}
	for _, c := range p.clients {
		if c.open {
			a.Connections++
			if c.inFlight != nil {
				a.Busy++
				if c.Protocol == "tcp" {
					a.Opaque++
				}
			}
		}
	}
	return a
}

func (p *Plane) record(c *client, line string, how Way) {
	p.endings = append(p.endings, Ending{Peer: c.Peer, Request: line, At: p.now, How: how})
}
