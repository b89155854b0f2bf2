package pipe

import "sync/atomic"

// stats are a listener's: counters, which only grow, and of this moment open,
// busy and appOpen. They stand with the listener because its connections find
// them there without another look.
type stats struct {
	open          atomic.Int64
	busy          atomic.Int64
	appOpen       atomic.Int64
	connections   atomic.Uint64
	connected     atomic.Uint64
	requests      atomic.Uint64
	durations     durations
	classes       [classes]atomic.Uint64 // responses by hundreds; [0] is unused
	connectFailed atomic.Uint64
	truncated     atomic.Uint64
	refused       atomic.Uint64
	refusedWith   [len(RefusedCodes)]atomic.Uint64
	raced         atomic.Uint64
	clientResets  atomic.Uint64
	acceptErrors  atomic.Uint64
	h2            h2Stats
	opaque        [opaqueKinds]atomic.Uint64

	overLimit        atomic.Int64 // of the open ones, those beyond the limit
	overflowed       atomic.Uint64
	idleEnded        atomic.Uint64
	responseTimeouts atomic.Uint64
}

func (s *stats) responded(status int) {
	if i := status / 100; i > 0 && i < len(s.classes) {
		s.classes[i].Add(1)
	}
}

// RefusedCodes are the statuses with which HTTP/1 requests are refused.
var RefusedCodes = [...]int{400, 408, 414, 431, 501, 505}

func (s *stats) refuse(status int) {
	s.refused.Add(1)
	for i, code := range RefusedCodes {
		if code == status {
			s.refusedWith[i].Add(1)
		}
	}
}

// Stats are the counters of a pipe, or of one of its listeners, since the start.
type Stats struct {
	Connections   uint64                    // accepted
	Connected     uint64                    // connections to the app that were made
	Requests      uint64                    // forwarded to the app, or answered in its place when it refused
	Responses     [6]uint64                 // by hundreds of the status, local replies included; [0] is unused
	ConnectFailed uint64                    // connections to the app that could not be made
	Truncated     uint64                    // responses that the app did not finish
	Refused       uint64                    // malformed, too large or too slow requests
	RefusedWith   [len(RefusedCodes)]uint64 // of them, by RefusedCodes
	Raced         uint64                    // connections on which a request met our closing
	ClientResets  uint64                    // connections that the client reset
	AcceptErrors  uint64                    // failed accepts: no descriptors, no memory
	H2            H2Stats

	Overflowed       uint64 // connections beyond the listener's limit
	IdleEnded        uint64 // connections that were idle for too long
	ResponseTimeouts uint64 // requests that took too long

	Opaque [opaqueKinds]uint64 // connections that are passed through as bytes, by OpaqueKind
}

// Stats reads the counters of all listeners together.
func (p *Pipe) Stats() Stats {
	var sum Stats
	for _, l := range p.listeners {
		l.stats.addTo(&sum)
	}
	return sum
}

func (s *stats) addTo(sum *Stats) {
	sum.Connections += s.connections.Load()
	sum.Connected += s.connected.Load()
	sum.Requests += s.requests.Load()
	for i := range s.classes {
		sum.Responses[i] += s.classes[i].Load()
	}
	sum.ConnectFailed += s.connectFailed.Load()
	sum.Truncated += s.truncated.Load()
	sum.Refused += s.refused.Load()
	for i := range s.refusedWith {
		sum.RefusedWith[i] += s.refusedWith[i].Load()
	}
	sum.Raced += s.raced.Load()
	sum.ClientResets += s.clientResets.Load()
	sum.AcceptErrors += s.acceptErrors.Load()
	s.h2.addTo(&sum.H2)
	sum.Overflowed += s.overflowed.Load()
	sum.IdleEnded += s.idleEnded.Load()
	sum.ResponseTimeouts += s.responseTimeouts.Load()
	for kind := range s.opaque {
		sum.Opaque[kind] += s.opaque[kind].Load()
	}
}
