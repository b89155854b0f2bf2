package envoy

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// settle is how long bytes must have been still when the stats are asked: Envoy
// needs a moment to read what the kernel has, and to count it. It is also how long
// they must have been still since the answer: a request is no longer counted a
// moment before its answer's last bytes reach the kernel.
const settle = 30 * time.Millisecond

// tick is how inexact the kernel's times are: a jiffy at 100 Hz.
const tick = 10 * time.Millisecond

// Asking for stats may cost at most 1/busyShare of the time while the answer is
// that somebody is busy, and 1/idleShare when it may be the last one, within these
// bounds.
const (
	busyShare = 800 // 0.13 % of a core
	idleShare = 50
	restMin   = 20 * time.Millisecond
	restMax   = 5 * time.Second

	// dear is an answer that cost so much that the next is asked for without
	// the counters.
	dear = 5 * time.Millisecond
)

// ledger concludes from looks at the kernel's table, and from Envoy's stats when
// they are worth asking, what goes on. It is not safe for concurrent use and
// knows no clock but what it is told.
type ledger struct {
	layout *layout

	seen     map[uint64]*sighting
	arrivals arrivals

	now     time.Time // of the last look
	open    int       // connections that count
	certain int       // of them busy for sure: opaque, hidden, or with something on its way after their end
	http    int       // of them for the stats to say
	mixed   int       // of them for the stats to say, if they are HTTP at all
	unsent  int       // of the last two, with an answer that is not delivered
	unread  int       // connections with something that Envoy has not read
	movedAt time.Time
	stillAt time.Time // movedAt at the last look
	moves   int       // looks that found that something had moved, since it was quiet

	tally      tally
	askedAt    time.Time
	answeredAt time.Time // zero: never, or the last answer was none
	restUntil  time.Time
	cost       time.Duration   // of the last answer
	wanted     map[string]bool // gauges that an answer must have
}

// sighting is a connection as it was seen last.
type sighting struct{ received, acked uint64 }

func newLedger(l *layout) *ledger {
	g := &ledger{seen: make(map[uint64]*sighting)}
	g.use(l)
	return g
}

// use takes another layout; what has been counted stays.
func (g *ledger) use(l *layout) {
	g.layout, g.wanted = l, make(map[string]bool)
	g.arrivals.answered, g.arrivals.countedAt = false, time.Time{} // what is counted is another sum now
	for _, name := range l.wanted {
		g.wanted[name] = true
	}
	g.forget()
}

// forget makes the next conclusion wait for a new answer.
func (g *ledger) forget() { g.answeredAt = time.Time{} }

// connectionStates are those of a conversation that is not over: Envoy has not
// ended it, or has and the client has not got everything.
var connectionStates = sockdiag.Of(sockdiag.Established, sockdiag.CloseWait, sockdiag.FinWait1, sockdiag.Closing, sockdiag.LastAck)

// look takes one look at the kernel's table in.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	before := g.now
	g.now, g.open, g.certain, g.http, g.mixed, g.unsent, g.unread = now, 0, 0, 0, 0, 0, 0
	present := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		if !g.layout.counts(s.Local) {
			continue
		}
		if s.State != sockdiag.Established && s.State != sockdiag.CloseWait {
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
			g.arrivals.opened()
			g.moved(now)
		case s.ReadQueue > 0 || s.WriteQueue > 0:
			g.moved(now)
		case was.received != s.Received || was.acked != s.Acked:
			g.moved(before) // since then, and more exactly:
			g.moved(now.Add(-max(0, min(s.LastReceived, s.LastSent, s.LastAcked)-tick)))
		}
		if known && was.received != s.Received && g.layout.telling[s.Local.Port()] != openIsBusy {
			g.arrivals.spoke(now, g.layout.countsRequests)
		}
		was.received, was.acked = s.Received, s.Acked
		g.open++
		if s.ReadQueue > 0 {
			g.unread++
		}
		switch g.layout.telling[s.Local.Port()] {
		case openIsBusy:
			g.certain++
			continue
		case requestsMay:
			g.mixed++
		default:
			g.http++
		}
		if s.WriteQueue > 0 {
			g.unsent++ // Envoy's end would cut off what it has not handed to the kernel yet
		}
	}
	for cookie := range g.seen {
		if !present[cookie] {
			delete(g.seen, cookie)
			g.arrivals.left(cookie)
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

// undelivered is true when an ended connection still has data on its way: the FIN
// counts as one byte.
func undelivered(s sockdiag.Socket) bool { return s.WriteQueue > 1 }

func (g *ledger) moved(at time.Time) {
	if at.After(g.movedAt) {
		g.movedAt = at
	}
}

// asks says whether the stats have anything to tell that the kernel has not.
func (g *ledger) asks() bool { return g.http+g.mixed > 0 || len(g.layout.unseen) > 0 }

// settled says whether the last answer still holds.
func (g *ledger) settled() bool {
	return !g.asks() || g.holds() && !g.now.Before(g.answeredAt.Add(settle))
}

// holds says whether nothing has moved that the last answer may not know of.
func (g *ledger) holds() bool {
	return !g.answeredAt.IsZero() && !g.askedAt.Before(g.movedAt.Add(settle))
}

// due says whether to ask for stats now.
func (g *ledger) due(now time.Time) bool { return g.dueForIdle(now) || g.wantsCounters(now) }

// dueForIdle says whether to ask now because no connection may be busy any longer.
func (g *ledger) dueForIdle(now time.Time) bool {
	// Of what the kernel does not show, nothing says that it has moved.
	stale := g.asks() && (!g.holds() || len(g.layout.unseen) > 0)
	return stale && !now.Before(g.restUntil) && !now.Before(g.movedAt.Add(settle))
}

// mostMoves bounds how far soon backs off: 16 times settle, beyond which looks are
// made anyway.
const mostMoves = 5

// quiet is how long nothing must have moved until soon no longer backs off.
const quiet = time.Second

// soon says when the next look may bring certainty, if it may: when nothing is
// known to be busy, but something has moved. While things keep moving, as the bytes of
// a long download or of a stream do, it backs off, or looks would cost twice as much.
func (g *ledger) soon() time.Time {
	knownBusy := g.unsent+g.unread > 0 || g.holds() && g.tally.requests > 0
	still := g.movedAt.Add(settle << max(0, min(g.moves, mostMoves)-1))
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

// question is what Envoy is asked for.
type question struct {
	gaugesOnly bool // the counters are too dear
	forCount   bool // only the counters matter; the answer comes while bytes still move
}

// question is what to ask for now.
func (g *ledger) question(now time.Time) question {
	counters := g.wantsCounters(now)
	return question{gaugesOnly: g.cost > dear && !counters, forCount: counters && !g.dueForIdle(now)}
}

// stats takes Envoy's answer in, which was asked for at that time, took so long
// and cost Envoy so much. The error says why it cannot be believed.
func (g *ledger) stats(stats Stats, q question, asked time.Time, took, cost time.Duration) error {
	now, gauges := g.layout.read(stats)
	now.counted = !q.gaugesOnly
	for _, name := range gauges {
		if stats[name] < 0 {
			return g.failed(asked, took, fmt.Errorf("%s is %d: envoy has lost count", name, stats[name]))
		}
	}
	for name := range g.wanted {
		if _, ok := stats[name]; !ok {
			return g.failed(asked, took, fmt.Errorf("the answer lacks %s", name))
		}
	}
	for _, name := range gauges {
		g.wanted[name] = true // once used, always shown
	}
	g.arrivals.answer(now, g.layout.countsConnections, asked)
	before := g.tally
	g.tally, g.askedAt, g.answeredAt = now, asked, asked.Add(took)
	if len(g.layout.unseen) > 0 && !before.agrees(now) {
		g.moved(asked) // there, only a second answer that is the same is believed
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

// failed notes that the stats could not be had: all is busy until they can.
func (g *ledger) failed(asked time.Time, took time.Duration, err error) error {
	g.forget()
	g.arrivals.rest(asked.Add(took), took)
	g.rest(asked.Add(took), took, busyShare)
	return err
}

// rest begins a pause after what has cost so much.
func (g *ledger) rest(from time.Time, cost, share time.Duration) {
	g.cost = cost
	g.restUntil = from.Add(min(max(share*cost, restMin), restMax))
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
	// What a mixed listener has open and no HTTP connection accounts for is opaque.
	opaque := max(0, doubtful-g.http-g.tally.mixedHTTP)
	said := min(opaque+g.tally.requests, doubtful)
	switch {
	case g.settled():
	case g.answeredAt.IsZero():
		said = max(1, doubtful) // never asked, or not answered: all of them may be
	default:
		said = max(1, said) // something has moved since: not idle before it is looked at
	}
	a.Busy += max(said, g.unsent)
	return a
}
