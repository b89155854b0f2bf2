// Package counters counts what passes a listener. Counting takes no lock and allocates nothing.
package counters

import "sync/atomic"

// Listener has the counters of a listener, which only grow, and the gauges Open, Busy, AppOpen and OverLimit.
type Listener struct {
	Open      atomic.Int64
	Busy      atomic.Int64
	AppOpen   atomic.Int64
	OverLimit atomic.Int64 // open connections beyond the limit

	values[atomic.Uint64]
	Durations durations
}

// Stats are values of the counters of one or more listeners.
type Stats = values[uint64]

// values are what a listener counts; atomic while it counts, numbers when they are read.
type values[T any] struct {
	Connections   T                    // accepted
	Connected     T                    // connections made to the app
	Requests      T                    // forwarded, or answered in place of an app that could not be reached
	Responses     [classes]T           // by hundreds of the status, local replies included; [0] is unused
	ConnectFailed T                    // connections to the app that failed
	Truncated     T                    // responses that the app did not finish
	Refused       T                    // malformed, too large or too slow requests
	RefusedWith   [len(RefusedCodes)]T // those with a response, by RefusedCodes
	Raced         T                    // idle connections that the pipe closed when a request was on its way
	ClientResets  T                    // connections that the client reset
	AcceptErrors  T                    // failed accepts: no descriptors, no memory
	H2            http2Values[T]

	Overflowed       T // connections beyond the listener's limit
	IdleEnded        T // connections that were idle for too long
	ResponseTimeouts T // requests that took too long

	Evicted [EvictedKinds]T // connections that were ended for the memory's sake

	Opaque [OpaqueKinds]T // connections that are passed through as bytes
}

// Responded counts a final response.
func (c *Listener) Responded(status int) {
	if i := status / 100; i > 0 && i < len(c.Responses) {
		c.Responses[i].Add(1)
	}
}

// RefusedCodes are the statuses with which HTTP/1 requests are refused.
var RefusedCodes = [...]int{400, 408, 414, 431, 501, 505}

// CountRefused counts a client that was refused. status is 0 if it got no response.
func (c *Listener) CountRefused(status int) {
	c.Refused.Add(1)
	for i, code := range RefusedCodes {
		if code == status {
			c.RefusedWith[i].Add(1)
		}
	}
}

// AddTo adds the present values to sum.
func (c *Listener) AddTo(sum *Stats) {
	sum.Connections += c.Connections.Load()
	sum.Connected += c.Connected.Load()
	sum.Requests += c.Requests.Load()
	addTo(sum.Responses[:], c.Responses[:])
	sum.ConnectFailed += c.ConnectFailed.Load()
	sum.Truncated += c.Truncated.Load()
	sum.Refused += c.Refused.Load()
	addTo(sum.RefusedWith[:], c.RefusedWith[:])
	sum.Raced += c.Raced.Load()
	sum.ClientResets += c.ClientResets.Load()
	sum.AcceptErrors += c.AcceptErrors.Load()
	sum.H2.RxResets += c.H2.RxResets.Load()
	sum.H2.TxResets += c.H2.TxResets.Load()
	sum.H2.GoAways += c.H2.GoAways.Load()
	sum.H2.BadPeers += c.H2.BadPeers.Load()
	addTo(sum.H2.Floods[:], c.H2.Floods[:])
	sum.Overflowed += c.Overflowed.Load()
	sum.IdleEnded += c.IdleEnded.Load()
	sum.ResponseTimeouts += c.ResponseTimeouts.Load()
	addTo(sum.Opaque[:], c.Opaque[:])
	addTo(sum.Evicted[:], c.Evicted[:])
}

func addTo(sum []uint64, counters []atomic.Uint64) {
	for i := range counters {
		sum[i] += counters[i].Load()
	}
}
