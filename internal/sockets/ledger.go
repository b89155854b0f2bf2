package sockets

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

const (
	// doubtTime is how long a connection of which it is not known who spoke last
	// is taken for busy; hunchTime, one of which it is likely that it was the app.
	doubtTime = 10 * time.Second
	hunchTime = 5 * time.Second

	// breath is what takes the place of the idle grace for those who still come
	// when the drain has used up its share: a client that asks each second must
	// not hold the pod.
	breath = 200 * time.Millisecond

	// slowAfter is how long after the request a response must have gone on to count as
	// one that streams.
	slowAfter = 500 * time.Millisecond
	// settled is when the kernel's delayed acknowledgement (200 ms at most) has
	// been sent, or was not needed.
	settled = 300 * time.Millisecond
)

// states are those of a connection that still concerns the app or its clients.
// FinWait2 matters only for telling who is known.
var states = sockdiag.Of(sockdiag.Established, sockdiag.CloseWait, sockdiag.FinWait1, sockdiag.FinWait2, sockdiag.Closing, sockdiag.LastAck)

// turn says who spoke last on a connection.
type turn int

const (
	nobody  turn = iota
	client       // the app owes an answer
	app          // the client has its answer, as far as can be seen
	unclear      // both, in one jiffy
	likely       // unclear, but by the kernel's habits it was the app
)

// Reason is why a connection is busy.
type Reason string

// The reasons, the surest first.
const (
	Idle    Reason = ""
	Opaque  Reason = "open, and idleness is not to be told"
	Unread  Reason = "the app has not read all"
	Unsent  Reason = "the client has not taken all"
	Asked   Reason = "the client spoke last"
	Doubted Reason = "who spoke last cannot be told"
	Moved   Reason = "bytes moved just now"
	Paused  Reason = "the response comes in pieces, and may go on"
)

// sighting is a connection as it was seen last.
type sighting struct {
	received, written uint64 // bytes that the client and the app have said
	turn              turn
	weighed           bool      // weigh has had its say on turn
	before            exchange  // what had been sent when the request began
	streams           bool      // the response comes in pieces
	spoke             time.Time // when bytes moved last
	asked             time.Time // when the request began; with turn app: the last one
	reason            Reason
	remote            netip.AddrPort
	local             netip.AddrPort
}

// exchange is what a connection has carried.
type exchange struct {
	written            uint64
	segments, requests uint32 // segments with data from the app, and from the client
}

// since is when the request began, or, where there was none, when bytes moved last.
func (s *sighting) since() time.Time {
	if s.asked.IsZero() {
		return s.spoke
	}
	return s.asked
}

// ledger concludes from looks at the kernel's table what goes on. It is not safe
// for concurrent use and knows no clock but what it is told.
type ledger struct {
	ignored     []netip.Prefix
	opaque      bool // all ports
	opaquePorts []uint16
	idleGrace   time.Duration
	streamPause time.Duration

	seen     map[uint64]*sighting // open ones
	ended    map[uint64]bool      // those the app has ended and the kernel has not
	arrivals uint64
	closed   bool // who comes now is counted no more

	since   time.Time // when the watching began; zero: it has not
	reports bool      // the kernel reports destroyed sockets
	roll    sockdiag.Roll
}

func newLedger(o Options) *ledger {
	return &ledger{
		ignored: o.IgnoreFrom, opaque: o.Opaque, opaquePorts: o.OpaquePorts, idleGrace: o.IdleGrace, streamPause: o.StreamPause,
		seen: make(map[uint64]*sighting), ended: make(map[uint64]bool),
	}
}

func (g *ledger) ignores(s sockdiag.Socket) bool {
	from := s.Remote.Addr()
	return slices.ContainsFunc(g.ignored, func(p netip.Prefix) bool { return p.Contains(from) })
}

// watching notes that the count of arrivals matters from now on.
func (g *ledger) watching(reports bool, now time.Time) { g.since, g.reports = now, reports }

// destroyed takes in the sockets that the kernel reports as destroyed, before the look
// that no longer shows them. On a busy machine, where looks are late, most connections
// are known only by their end. lost is true when there were more.
func (g *ledger) destroyed(sockets []sockdiag.Socket, lost bool) {
	for _, s := range sockets {
		if g.ignores(s) {
			continue
		}
		_, open := g.seen[s.Cookie]
		delete(g.seen, s.Cookie)
		_, ended := g.ended[s.Cookie]
		delete(g.ended, s.Cookie)
		if g.roll.Unseen(s.Cookie, open || ended) {
			g.arrived()
		}
	}
	if lost {
		g.arrived() // at least
	}
}

// look takes one look in.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	present := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		if g.ignores(s) {
			continue
		}
		present[s.Cookie] = true
		was, known := g.seen[s.Cookie]
		if s.State != sockdiag.Established && s.State != sockdiag.CloseWait {
			g.end(s, known, now)
			continue
		}
		if !known {
			was = &sighting{remote: s.Remote, local: s.Local}
			g.seen[s.Cookie] = was
			g.arrived()
		}
		g.follow(was, s, now, known)
	}
	g.gone(present)
}

// end takes in a connection that the app has ended: it may still have bytes on
// their way, which a pod that goes takes along.
func (g *ledger) end(s sockdiag.Socket, known bool, now time.Time) {
	if !known && !g.ended[s.Cookie] && s.State != sockdiag.FinWait2 {
		g.arrived() // came and was served between two looks
	}
	if s.WriteQueue <= 1 { // the FIN counts as one
		delete(g.seen, s.Cookie)
		g.ended[s.Cookie] = true
		return
	}
	was := g.seen[s.Cookie]
	if was == nil {
		was = &sighting{remote: s.Remote, local: s.Local, asked: now.Add(-s.LastReceived)}
		g.seen[s.Cookie] = was
	}
	was.turn, was.spoke, was.reason = app, now.Add(-s.LastSent), Unsent
}

// follow finds out who spoke last on an open connection.
func (g *ledger) follow(was *sighting, s sockdiag.Socket, now time.Time, known bool) {
	received, written, unread := s.Received, s.Acked+uint64(s.WriteQueue), s.ReadQueue
	if s.State == sockdiag.CloseWait { // the client's FIN counts as one
		received -= min(received, 1)
		unread -= min(unread, 1)
	}
	came, went := received != was.received, written != was.written
	before := was.turn
	switch {
	case known && !came && !went:
	case received == 0 && written == 0:
		was.turn = nobody
	case received == 0 || known && !came:
		was.turn = app
	case written == 0 || known && !went:
		was.turn = client
	case s.LastReceived < s.LastSent:
		was.turn = client
	case s.LastReceived > s.LastSent:
		was.turn = app
	default:
		was.turn, was.weighed = unclear, false
	}
	if came && known && (before != client || went) {
		g.arrived() // a request: to an upload that goes on nobody has spoken meanwhile
	}
	if came && (before != client || went || !known) {
		was.asked = now.Add(-s.LastReceived)
	}
	was.follow(s, written, came && known)
	was.received, was.written = received, written
	was.spoke = now.Add(-min(s.LastReceived, s.LastSent))
	was.weigh(s)
	was.reason = g.judge(was, unread, s.WriteQueue, now)
}

// follow finds out whether the response comes in pieces: in more segments than its bytes
// and two writes need, the last of them long after the request. Of what was sent before
// the first look, every request may have had two.
func (s *sighting) follow(k sockdiag.Socket, written uint64, asks bool) {
	if asks {
		s.before = exchange{s.written, k.SegmentsSent, k.SegmentsReceived}
		s.streams = false
	}
	const writes = 2
	sent := k.SegmentsSent - min(k.SegmentsSent, s.before.segments)
	need := writes * max(1, k.SegmentsReceived-s.before.requests)
	if k.MSS > 0 {
		need += uint32((written - s.before.written) / uint64(k.MSS))
	}
	if s.turn == app && k.Received > 0 && sent > need && k.LastReceived-k.LastSent >= slowAfter {
		s.streams = true
	}
}

// weigh looks for the client's own acknowledgement of an answer. Both have spoken
// in one jiffy: a request that was answered quickly, or an answer and the next
// request. In the second case the client has nothing to acknowledge that the
// request itself did not, unless it had sent it before it read the answer.
func (s *sighting) weigh(k sockdiag.Socket) {
	const delayed = 500 * time.Millisecond // RFC 9293, 3.8.6.3; later ones are keep-alives
	later := k.LastReceived - k.LastAcked
	if (s.turn == unclear || s.turn == likely) && later > 0 && later <= delayed {
		s.turn = app
	}
}

func (g *ledger) isOpaque(port uint16) bool {
	return g.opaque || slices.Contains(g.opaquePorts, port)
}

// judge says why a connection is busy. Moved, Doubted and Paused pass with time.
func (g *ledger) judge(c *sighting, unread, unsent uint32, now time.Time) Reason {
	switch {
	case g.isOpaque(c.local.Port()):
		return Opaque
	case unread > 0:
		return Unread
	case unsent > 0:
		return Unsent
	case c.turn == client:
		return Asked
	case now.Before(c.spoke.Add(g.grace())):
		return Moved
	case now.Before(c.spoke.Add(c.doubt())):
		return Doubted
	case c.streams && now.Before(c.spoke.Add(g.streamPause)):
		return Paused
	}
	return Idle
}

// doubt is how long after the last byte the connection may not be idle after all.
func (s *sighting) doubt() time.Duration {
	switch s.turn {
	case unclear:
		return doubtTime
	case likely:
		return hunchTime
	}
	return 0
}

func (g *ledger) grace() time.Duration {
	if g.closed {
		return min(g.idleGrace, breath)
	}
	return g.idleGrace
}

// next is when the first connection becomes idle by time alone; zero when none does.
func (g *ledger) next() (next time.Time) {
	for _, c := range g.seen {
		var at time.Time
		switch c.reason {
		case Moved:
			at = c.spoke.Add(g.grace())
		case Doubted:
			at = c.spoke.Add(c.doubt())
		case Paused:
			at = c.spoke.Add(g.streamPause)
		default:
			continue
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// gone takes in what is no longer in the table.
func (g *ledger) gone(present map[uint64]bool) {
	for cookie := range g.seen {
		if !present[cookie] {
			delete(g.seen, cookie)
			g.left(cookie)
		}
	}
	for cookie := range g.ended {
		if !present[cookie] {
			delete(g.ended, cookie)
			g.left(cookie)
		}
	}
}

func (g *ledger) left(cookie uint64) {
	if g.reports {
		g.roll.Left(cookie)
	}
}

func (g *ledger) arrived() {
	if !g.closed {
		g.arrivals++
	}
}

// doubts lists the connections for Plane.resolve to judge: still, and unclear.
func (g *ledger) doubts(now time.Time) (out []*sighting) {
	for _, c := range g.seen {
		if c.turn == unclear && !c.weighed && now.Sub(c.spoke) >= settled {
			out = append(out, c)
		}
	}
	return out
}

// assumed counts, by port, the open connections that are taken for idle because the app was
// the last to send. A response that pauses looks the same.
func (g *ledger) assumed() map[uint16]int {
	out := make(map[uint16]int)
	for _, c := range g.seen {
		if c.reason == Idle && c.received > 0 && c.turn != nobody {
			out[c.local.Port()]++
		}
	}
	return out
}

func (g *ledger) activity() drain.Activity {
	a := drain.Activity{Known: true, Connections: len(g.seen), Arrivals: g.arrivals}
	if !g.reports {
		a.ArrivalsAsOf = g.since // a short connection may come between two looks
	}
	for _, c := range g.seen {
		if c.reason != Idle {
			a.Busy++
		}
	}
	return a
}
