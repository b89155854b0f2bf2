// Package counters counts what passes a listener. Counting takes no lock and allocates nothing.
package counters

import "sync/atomic"

// Listener has the counters of a listener, which only grow, and the gauges Open, Busy, AppOpen and OverLimit.
type Listener struct {
	Open      atomic.Int64
	Busy      atomic.Int64
	AppOpen   atomic.Int64
	OverLimit atomic.Int64 // open connections beyond the limit

	Connections      atomic.Uint64
	Connected        atomic.Uint64
	Requests         atomic.Uint64
	ConnectFailed    atomic.Uint64
	Truncated        atomic.Uint64
	Raced            atomic.Uint64
	ClientResets     atomic.Uint64
	AcceptErrors     atomic.Uint64
	Overflowed       atomic.Uint64
	IdleEnded        atomic.Uint64
	ResponseTimeouts atomic.Uint64

	HTTP2     http2Counters
	Opaque    [OpaqueKinds]atomic.Uint64
	Durations durations

	responses   [classes]atomic.Uint64
	refused     atomic.Uint64
	refusedWith [len(RefusedCodes)]atomic.Uint64
}

// Responded counts a final response.
func (c *Listener) Responded(status int) {
	if i := status / 100; i > 0 && i < len(c.responses) {
		c.responses[i].Add(1)
	}
}

// RefusedCodes are the statuses with which HTTP/1 requests are refused.
var RefusedCodes = [...]int{400, 408, 414, 431, 501, 505}

// Refused counts a client that was refused. status is 0 if it got no response.
func (c *Listener) Refused(status int) {
	c.refused.Add(1)
	for i, code := range RefusedCodes {
		if code == status {
			c.refusedWith[i].Add(1)
		}
	}
}

// Stats are values of the counters of one or more listeners.
type Stats struct {
	Connections   uint64                    // accepted
	Connected     uint64                    // connections made to the app
	Requests      uint64                    // forwarded, or answered in place of an app that could not be reached
	Responses     [classes]uint64           // by hundreds of the status, local replies included; [0] is unused
	ConnectFailed uint64                    // connections to the app that failed
	Truncated     uint64                    // responses that the app did not finish
	Refused       uint64                    // malformed, too large or too slow requests
	RefusedWith   [len(RefusedCodes)]uint64 // those with a response, by RefusedCodes
	Raced         uint64                    // idle connections that the pipe closed when a request was on its way
	ClientResets  uint64                    // connections that the client reset
	AcceptErrors  uint64                    // failed accepts: no descriptors, no memory
	H2            HTTP2Stats

	Overflowed       uint64 // connections beyond the listener's limit
	IdleEnded        uint64 // connections that were idle for too long
	ResponseTimeouts uint64 // requests that took too long

	Opaque [OpaqueKinds]uint64 // connections that are passed through as bytes
}

// AddTo adds the present values to sum.
func (c *Listener) AddTo(sum *Stats) {
	sum.Connections += c.Connections.Load()
	sum.Connected += c.Connected.Load()
	sum.Requests += c.Requests.Load()
	for i := range c.responses {
		sum.Responses[i] += c.responses[i].Load()
	}
	sum.ConnectFailed += c.ConnectFailed.Load()
	sum.Truncated += c.Truncated.Load()
	sum.Refused += c.refused.Load()
	for i := range c.refusedWith {
		sum.RefusedWith[i] += c.refusedWith[i].Load()
	}
	sum.Raced += c.Raced.Load()
	sum.ClientResets += c.ClientResets.Load()
	sum.AcceptErrors += c.AcceptErrors.Load()
	c.HTTP2.addTo(&sum.H2)
	sum.Overflowed += c.Overflowed.Load()
	sum.IdleEnded += c.IdleEnded.Load()
	sum.ResponseTimeouts += c.ResponseTimeouts.Load()
	for kind := range c.Opaque {
		sum.Opaque[kind] += c.Opaque[kind].Load()
	}
}
