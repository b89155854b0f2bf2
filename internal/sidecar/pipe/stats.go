package pipe

import (
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// Stats returns the counters of all listeners together, since the start.
func (p *Pipe) Stats() counters.Stats {
	var sum counters.Stats
	for _, l := range p.listeners {
		l.stats.AddTo(&sum)
	}
	return sum
}

// Unfinished is how many bytes unfinished requests hold, and may hold.
func (p *Pipe) Unfinished() (held, limit int64) { return p.budget.held.Load(), p.budget.limit }

// Durations returns the histograms of listener i that are not empty.
func (p *Pipe) Durations(i int) []counters.Durations { return p.listeners[i].stats.Durations.List() }

// finishStreamLocked counts and logs a request of HTTP/2. mu is held.
func (h *h2) finishStreamLocked(s *stream, outcome accesslog.Outcome) {
	protocol := counters.HTTP2
	if s.grpc {
		protocol = counters.GRPC
	}
	h.c.in.stats.Durations.Observe(protocol, s.status, h.clock().Sub(s.began))
	h.c.p.writeEntry(s.entry, s.status, outcome)
}
