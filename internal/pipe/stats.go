package pipe

import "sync/atomic"

// stats are the pipe's counters, which only grow.
type stats struct {
	connections   atomic.Uint64
	requests      atomic.Uint64
	classes       [6]atomic.Uint64 // responses by hundreds; [0] is unused
	connectFailed atomic.Uint64
	truncated     atomic.Uint64
	refused       atomic.Uint64
	raced         atomic.Uint64
	clientResets  atomic.Uint64
	acceptErrors  atomic.Uint64
}

func (s *stats) responded(status int) {
	if i := status / 100; i > 0 && i < len(s.classes) {
		s.classes[i].Add(1)
	}
}

// Stats are the counters of a pipe since its start.
type Stats struct {
	Connections   uint64    // accepted
	Requests      uint64    // forwarded to the app, or answered in its place when it refused
	Responses     [6]uint64 // by hundreds of the status, local replies included; [0] is unused
	ConnectFailed uint64    // connections to the app that could not be made
	Truncated     uint64    // responses that the app did not finish
	Refused       uint64    // malformed, too large or too slow requests
	Raced         uint64    // connections on which a request met our closing
	ClientResets  uint64    // connections that the client reset
	AcceptErrors  uint64    // failed accepts: no descriptors, no memory
}

// Stats reads the counters.
func (p *Pipe) Stats() Stats {
	s := Stats{
		Connections:   p.stats.connections.Load(),
		Requests:      p.stats.requests.Load(),
		ConnectFailed: p.stats.connectFailed.Load(),
		Truncated:     p.stats.truncated.Load(),
		Refused:       p.stats.refused.Load(),
		Raced:         p.stats.raced.Load(),
		ClientResets:  p.stats.clientResets.Load(),
		AcceptErrors:  p.stats.acceptErrors.Load(),
	}
	for i := range p.stats.classes {
		s.Responses[i] = p.stats.classes[i].Load()
	}
	return s
}
