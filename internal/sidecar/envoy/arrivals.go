package envoy

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Reading counters only to detect arrivals may use at most 1/countShare of the time. It has a budget of its own, so
// that it does not delay the check whether a connection is idle.
const (
	countShare = 1000 // 0.1 % of a core
	countMin   = 500 * time.Millisecond
)

// arrivals counts new connections and requests. On a busy machine looks at the kernel's table are late, and short
// connections exist only between two of them. So connections are also counted as they end, when the kernel reports
// destroyed sockets; where it does not, and for requests on open connections, Envoy's counters are read. asOf is the
// time up to which the count is complete.
type arrivals struct {
	total uint64

	since   time.Time // when a drain began to need the count; zero: none does
	reports bool      // the kernel reports destroyed sockets
	roll    sockdiag.Roll
	seen    uint64    // connections found by looks since the last response with counters
	sentAt  time.Time // the last look that found more bytes from the client of an open connection

	counters  tally     // the last response with counters
	countedAt time.Time // time of its request; zero: never
	nextCount time.Time
}

// count begins to count without gaps; without a time it ends that.
func (a *arrivals) count(reports bool, now time.Time) { a.since, a.reports = now, reports }

// ended adds the sockets that the kernel reports as destroyed. It reports whether one of them was in no look.
func (g *ledger) ended(sockets []sockdiag.Socket, lost bool, now time.Time) {
	for _, s := range sockets {
		if !g.layout.counts(s.Local) {
			continue
		}
		_, seen := g.seen[s.Cookie]
		delete(g.seen, s.Cookie)
		if g.arrivals.roll.Unseen(s.Cookie, seen) {
			g.arrivals.total++
		}
		g.moved(now) // the last response may have counted its request
	}
	if lost {
		g.arrivals.total++ // at least
		g.moved(now)
	}
}

// answer adds a response of Envoy's.
func (a *arrivals) answer(now tally, countsConnections bool, requestedAt time.Time) {
	if !now.counted {
		return
	}
	last, seen, isFirst := a.counters, a.seen, a.countedAt.IsZero()
	a.counters, a.countedAt, a.seen = now, requestedAt, 0
	if isFirst {
		return
	}
	a.total += growth(last.total, now.total)
	if !countsConnections {
		return
	}
	a.total += growth(last.acceptedBlind, now.acceptedBlind)
	if more := growth(last.accepted, now.accepted); more > 0 && !a.reports {
		a.total += max(1, growth(seen, more)) // the seen ones may be others
	}
}

// growth is the increase of a counter; 0 after a restart of Envoy.
func growth(before, now uint64) uint64 { return now - min(before, now) }

// asOf is the time up to which arrivals are complete; zero: that of the last look.
func (g *ledger) asOf() time.Time {
	a, blind := &g.arrivals, g.missesConnections()
	last := a.countedAt
	if last.Before(a.since) || blind && !g.layout.countsConnections {
		last = a.since
	}
	switch {
	case a.since.IsZero():
		return time.Time{}
	case blind:
		return last
	case g.layout.countsRequests && (a.sentAt.After(last) || last.Equal(a.since) && g.http+g.mixed > 0):
		return last
	}
	return time.Time{}
}

// missesConnections reports whether looks are all that shows new connections, or whether the kernel's table lacks those
// of a listener.
func (g *ledger) missesConnections() bool {
	return !g.arrivals.reports && len(g.layout.ports) > 0 || len(g.layout.unseen) > 0
}

// cannotCount reports whether nothing shows short connections.
func (g *ledger) cannotCount() bool { return g.missesConnections() && !g.layout.countsConnections }

// wantsCounters reports whether to read the counters now, because a connection or a request may have arrived that
// nothing else has shown.
func (g *ledger) wantsCounters(now time.Time) bool {
	counts := g.layout.countsConnections || g.layout.countsRequests
	return counts && !g.asOf().IsZero() && !now.Before(g.arrivals.nextCount)
}

// rest delays the next reading of counters.
func (a *arrivals) rest(from time.Time, cost time.Duration) {
	a.nextCount = from.Add(min(max(countShare*cost, countMin), restMax))
}
