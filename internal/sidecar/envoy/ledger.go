package envoy

import (
	"fmt"
	"maps"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// settle is how long no bytes may move before the stats are read: Envoy needs a moment to read what the kernel has, and
// to count it. It is also how long no bytes may move after a response: a request stops counting a moment before its
// last bytes reach the kernel.
const settle = 30 * time.Millisecond

// tick is the resolution of the kernel's times: a jiffy at 100 Hz.
const tick = 10 * time.Millisecond

// Reading stats may use at most 1/busyShare of the time while a connection is busy, and 1/idleShare when the response
// may be the last one, within these bounds.
const (
	busyShare = 800 // 0.13 % of a core
	idleShare = 50
	restMin   = 20 * time.Millisecond
	restMax   = 5 * time.Second
	restHook  = 250 * time.Millisecond // instead of restMax, and with idleShare, for a hook, which runs for seconds

	// expensive is a response that cost so much that the next is requested without the counters.
	expensive = 5 * time.Millisecond
)

// ledger infers Envoy's activity from looks at the kernel's table, and from Envoy's stats when they are worth reading.
// It is not safe for concurrent use and has no clock: callers pass the time.
type ledger struct {
	layout *layout

	seen     map[uint64]*sighting
	arrivals arrivals

	now     time.Time // of the last look
	open    int       // connections that count
	certain int       // of them certainly busy: opaque, hidden, or ended with undelivered bytes
	http    int       // of them decided by the stats
	mixed   int       // of them decided by the stats, if they are HTTP at all
	unsent  int       // of the last two, with an undelivered response
	unread  int       // connections with bytes that Envoy has not read
	movedAt time.Time
	stillAt time.Time // movedAt at the last look
	moves   int       // looks that found moved bytes, since the last quiet period

	tally       tally
	requestedAt time.Time
	answeredAt  time.Time // zero: never, or the last request failed
	restUntil   time.Time
	hook        bool
	cost        time.Duration   // of the last response
	wanted      map[string]bool // gauges that an answer must have
}

// sighting is a connection at the last look.
type sighting struct{ received, acked uint64 }

func newLedger(l *layout) *ledger {
	g := &ledger{seen: make(map[uint64]*sighting)}
	g.use(l)
	return g
}

// use sets another layout; counts stay.
func (g *ledger) use(l *layout) {
	g.layout, g.wanted = l, maps.Clone(l.wanted)
	g.arrivals.countedAt = time.Time{} // the sums are of other listeners now
	g.forget()
}

// forget makes the next conclusion wait for a new response.
func (g *ledger) forget() { g.answeredAt = time.Time{} }

// connectionStates are those of open connections: Envoy has not closed them, or the client has not received everything.
var connectionStates = sockdiag.Of(sockdiag.Established, sockdiag.CloseWait, sockdiag.FinWait1, sockdiag.Closing,
	sockdiag.LastAck)

// look adds one look at the kernel's table.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	before := g.now
	g.now, g.open, g.certain, g.http, g.mixed, g.unsent, g.unread = now, 0, 0, 0, 0, 0, 0
	present := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		if !g.layout.counts(s.Local) {
			continue
		}
		if s.HasClosed() {
			if undelivered(s) {
				g.open++
				g.certain++
			}
			continue
		}
		present[s.Cookie] = true
		was, known := g.seen[s.Cookie]
		switch {
		case !known:
			was = &sighting{}
			g.seen[s.Cookie] = was
			g.arrivals.total++
			g.arrivals.seen++
			g.moved(now)
		case s.ReadQueue > 0 || s.WriteQueue > 0:
			g.moved(now)
		case was.received != s.Received || was.acked != s.Acked:
			g.moved(before) // since the last look, or more exactly:
			g.moved(now.Add(-max(0, min(s.LastReceived, s.LastSent, s.LastAcked)-tick)))
		}
		if known && was.received != s.Received && g.layout.evidence[s.Local.Port()] != openIsBusy {
			if g.arrivals.sentAt = now; !g.layout.countsRequests {
				g.arrivals.total++ // it may be a request
			}
		}
		was.received, was.acked = s.Received, s.Acked
		g.open++
		if s.ReadQueue > 0 {
			g.unread++
		}
		switch g.layout.evidence[s.Local.Port()] {
		case openIsBusy:
			g.certain++
			continue
		case requestsPossible:
			g.mixed++
		default:
			g.http++
		}
		if s.WriteQueue > 0 {
			g.unsent++ // Envoy's exit would cut off its unwritten bytes
		}
	}
	for cookie := range g.seen {
		if !present[cookie] {
			delete(g.seen, cookie)
			if g.arrivals.reports {
				g.arrivals.roll.Left(cookie)
			}
			g.moved(now)
		}
	}
	if g.movedAt.Sub(g.stillAt) >= quiet {
		g.moves = 0
	}
	if g.movedAt.After(g.stillAt) {
		g.moves++
	}
	g.stillAt = g.movedAt
}

// undelivered reports whether a closed connection still has data to deliver: the FIN counts as one byte.
func undelivered(s sockdiag.Socket) bool { return s.WriteQueue > 1 }

func (g *ledger) moved(at time.Time) {
	if at.After(g.movedAt) {
		g.movedAt = at
	}
}

// asks reports whether the stats can add to the kernel's view.
func (g *ledger) asks() bool { return g.http+g.mixed > 0 || len(g.layout.unseen) > 0 }

// settled reports whether the last response is still valid.
func (g *ledger) settled() bool {
	return !g.asks() || g.holds() && !g.now.Before(g.answeredAt.Add(settle))
}

// holds reports whether no bytes have moved that the last response may lack.
func (g *ledger) holds() bool {
	return !g.answeredAt.IsZero() && !g.requestedAt.Before(g.movedAt.Add(settle))
}

// due reports whether to read the stats now.
func (g *ledger) due(now time.Time) bool { return g.dueForIdle(now) || g.wantsCounters(now) }

// dueForIdle reports whether to read the stats now because no connection may be busy any longer.
func (g *ledger) dueForIdle(now time.Time) bool {
	// The kernel does not show movement on unseen connections.
	stale := g.asks() && (!g.holds() || len(g.layout.unseen) > 0)
	return stale && !now.Before(g.restUntil) && !now.Before(g.movedAt.Add(settle))
}

// maxMoves bounds how far soon backs off: 16 times settle, beyond which the interval decides. A hook, which runs for
// seconds, backs off to twice settle: the end of a stream must not wait longer.
const (
	maxMoves     = 5
	maxHookMoves = 2
)

// quiet is how long nothing must have moved until soon no longer backs off.
const quiet = time.Second

// soon is when the next look may bring certainty; zero when it cannot: a connection is certainly busy, or nothing has
// moved. While bytes keep moving, as in a long download or a stream, it backs off, because looks would cost twice as
// much.
func (g *ledger) soon() time.Time {
	knownBusy := g.unsent+g.unread > 0 || g.holds() && g.tally.requests > 0
	most := maxMoves
	if g.hook {
		most = maxHookMoves
	}
	still := g.movedAt.Add(settle << max(0, min(g.moves, most)-1))
	switch {
	case g.settled() || knownBusy:
		return time.Time{}
	case g.holds():
		return g.answeredAt.Add(settle)
	case g.restUntil.After(still):
		return g.restUntil
	}
	return still
}

// question is a request to Envoy.
type question struct {
	gaugesOnly bool // the counters are too expensive
	forCount   bool // only the counters matter; bytes are still moving
}

// question returns the next request to Envoy.
func (g *ledger) question(now time.Time) question {
	counters := g.wantsCounters(now)
	return question{gaugesOnly: g.cost > expensive && !counters, forCount: counters && !g.dueForIdle(now)}
}

// stats adds a response that was requested at requestedAt, took this long and cost Envoy this much. The error is the
// reason why it is not valid.
func (g *ledger) stats(stats Stats, q question, requestedAt time.Time, took, cost time.Duration) error {
	now, gauges := g.layout.read(stats)
	now.counted = !q.gaugesOnly
	for _, name := range gauges {
		if stats[name] < 0 {
			return g.failed(requestedAt, took, fmt.Errorf("%s is %d: envoy's accounting is wrong", name, stats[name]))
		}
	}
	for name := range g.wanted {
		if _, ok := stats[name]; !ok {
			return g.failed(requestedAt, took, fmt.Errorf("the response lacks %s", name))
		}
	}
	for _, name := range gauges {
		g.wanted[name] = true // once used, always shown
	}
	g.arrivals.answer(now, g.layout.countsConnections, requestedAt)
	before := g.tally
	g.tally, g.requestedAt, g.answeredAt = now, requestedAt, requestedAt.Add(took)
	if len(g.layout.unseen) > 0 && !before.agrees(now) {
		g.moved(requestedAt) // there, two equal responses are needed
	}
	if now.counted {
		g.arrivals.rest(g.answeredAt, cost)
	}
	if q.forCount {
		g.cost = cost
		return nil
	}
	share := time.Duration(idleShare)
	if now.requests+max(0, g.mixed+now.unseen-now.mixedHTTP) > 0 {
		share = busyShare
	}
	g.rest(g.answeredAt, cost, share)
	return nil
}

// failed notes that the stats are unavailable: everything is busy until they are back.
func (g *ledger) failed(requestedAt time.Time, took time.Duration, err error) error {
	g.forget()
	g.arrivals.rest(requestedAt.Add(took), took)
	g.rest(requestedAt.Add(took), took, busyShare)
	return err
}

// rest begins a pause after a cost.
func (g *ledger) rest(from time.Time, cost, share time.Duration) {
	g.cost = cost
	most := restMax
	if g.hook {
		share, most = idleShare, restHook
	}
	g.restUntil = from.Add(min(max(share*cost, restMin), most))
}

// activity is the conclusion.
func (g *ledger) activity() drain.Activity {
	doubtful := g.http + g.mixed
	if len(g.layout.unseen) > 0 {
		doubtful += g.tally.unseen
	}
	a := drain.Activity{
		Known:        true,
		Connections:  g.open + len(g.layout.unknown),
		Busy:         g.certain + len(g.layout.unknown),
		Arrivals:     g.arrivals.total,
		ArrivalsAsOf: g.asOf(),
	}
	a.Connections += doubtful - g.http - g.mixed
	if !g.asks() {
		return a
	}
	// Connections of a mixed listener that no HTTP connection accounts for are opaque.
	opaque := max(0, doubtful-g.http-g.tally.mixedHTTP)
	busy := min(opaque+g.tally.requests, doubtful)
	switch {
	case g.settled():
	case g.answeredAt.IsZero():
		busy = max(1, doubtful) // no response: all of them may be
	default:
		busy = max(1, busy) // bytes have moved since: not idle before the next look
	}
	a.Busy += max(busy, g.unsent)
	return a
}
