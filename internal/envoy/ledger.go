package envoy

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// settle is how old the last movement of bytes must be when the stats are
// asked: Envoy needs a moment to read what the kernel has, and to count it.
const settle = 30 * time.Millisecond

// Asking for stats may cost at most 1/costShare of the time, within these bounds.
const (
	costShare = 200 // 0.5 % of a core
	restMin   = 20 * time.Millisecond
	restMax   = 5 * time.Second
)

// ledger concludes from looks at the kernel's table, and from Envoy's stats when
// they are worth asking, what goes on. It is not safe for concurrent use and
// knows no clock but what it is told.
type ledger struct {
	layout *layout

	seen     map[uint64]*sighting
	arrivals uint64

	open      int // connections that count
	certain   int // of them busy for sure: opaque, blind, or with something on its way
	doubtful  int // of them for the stats to say
	movedAt   time.Time
	askedAt   time.Time // when the stats that are believed were asked for; zero: never
	restUntil time.Time
	busy      int // by the stats
	requests  uint64
	counted   bool // requests has a first value
}

// sighting is a connection as it was seen last.
type sighting struct {
	since           time.Time
	received, acked uint64
}

func newLedger(l *layout) *ledger { return &ledger{layout: l, seen: make(map[uint64]*sighting)} }

// connectionStates are those of a conversation that is not over: Envoy has not
// ended it, or has and the client has not got everything.
var connectionStates = sockdiag.Of(sockdiag.Established, sockdiag.CloseWait, sockdiag.FinWait1, sockdiag.Closing, sockdiag.LastAck)

// look takes one look at the kernel's table in.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	g.open, g.certain, g.doubtful = 0, 0, 0
	present := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		ended := s.State != sockdiag.Established && s.State != sockdiag.CloseWait
		if ended {
			if s.WriteQueue > 1 { // our FIN counts as one
				g.open++
				g.certain++
			}
			continue
		}
		present[s.Cookie] = true
		was, known := g.seen[s.Cookie]
		switch {
		case !known:
			g.seen[s.Cookie] = &sighting{since: now, received: s.Received, acked: s.Acked}
			g.arrivals++
			g.movedAt = now
		case was.received != s.Received || was.acked != s.Acked || s.ReadQueue > 0:
			was.received, was.acked = s.Received, s.Acked
			g.movedAt = now
		}
		g.open++
		port := s.Local.Port()
		switch {
		case g.layout.opaque[port], g.layout.blind[port]:
			g.certain++
		default:
			g.doubtful++
		}
	}
	for cookie := range g.seen {
		if !present[cookie] {
			delete(g.seen, cookie)
			g.movedAt = now
		}
	}
}

// settled says whether the stats that were asked for last still hold.
func (g *ledger) settled() bool {
	return g.doubtful == 0 || !g.askedAt.IsZero() && !g.askedAt.Before(g.movedAt.Add(settle))
}

// mayAsk says whether to ask for stats now; if not, when at the earliest.
func (g *ledger) mayAsk(now time.Time) (bool, time.Time) {
	at := g.movedAt.Add(settle)
	if g.restUntil.After(at) {
		at = g.restUntil
	}
	return !now.Before(at), at
}

// stats takes Envoy's answer in, which was asked for at that time and took so
// long.
func (g *ledger) stats(stats []Stat, asked time.Time, took time.Duration) {
	busy, requests := g.layout.read(stats)
	g.busy = busy
	if g.counted && requests > g.requests {
		g.arrivals += requests - g.requests
	}
	g.requests, g.counted = requests, true
	g.askedAt = asked
	g.rest(asked.Add(took), took)
}

// failed notes that the stats could not be had: all is busy until they can.
func (g *ledger) failed(now time.Time, took time.Duration) {
	g.askedAt = time.Time{}
	g.rest(now, took)
}

func (g *ledger) rest(from time.Time, took time.Duration) {
	g.restUntil = from.Add(min(max(costShare*took, restMin), restMax))
}

// activity is the conclusion.
func (g *ledger) activity() drain.Activity {
	a := drain.Activity{Known: true, Connections: g.open, Arrivals: g.arrivals, Busy: g.certain}
	switch {
	case g.doubtful == 0:
	case g.settled():
		a.Busy += min(g.busy, g.doubtful)
		if g.busy > g.doubtful { // one connection carries several requests
			a.Busy = g.certain + g.doubtful
		}
	case g.askedAt.IsZero():
		a.Busy += g.doubtful // never asked, or not answered: all of them may be
	default:
		a.Busy += max(1, min(g.busy, g.doubtful)) // something has moved since: not idle before it is looked at
	}
	return a
}
