package sockets

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	// doubtTime is how long a connection counts as busy if it is unclear which side sent last; hunchTime, if it was
	// probably the app.
	doubtTime = 10 * time.Second
	hunchTime = 5 * time.Second

	// breath replaces the idle grace for clients that still arrive when the drain has used its share: a client with a
	// request each second must not hold the pod.
	breath = 200 * time.Millisecond

	// slowAfter is how long after the request a response must continue to count as streaming.
	slowAfter = 500 * time.Millisecond
	// settled is when the kernel's delayed acknowledgement (200 ms at most) has been sent, or was not needed.
	settled = 300 * time.Millisecond
)

// states are those of a connection that still concerns the app or its clients. FinWait2 is needed only to recognise
// known connections.
var states = sockdiag.Of(sockdiag.Established, sockdiag.CloseWait, sockdiag.FinWait1, sockdiag.FinWait2,
	sockdiag.Closing, sockdiag.LastAck)

// turn is the side that sent last.
type turn int

const (
	neither turn = iota
	client       // the app owes a response
	app          // the client has its response, as far as visible
	unclear      // both sent in one jiffy
	likely       // unclear, but the kernel's acknowledgements suggest the app
)

// Reason is why a connection is busy.
type Reason string

// The reasons, the most certain first.
const (
	Idle       Reason = ""
	Opaque     Reason = "opaque protocol: busy while open"
	Unread     Reason = "the app has not read all bytes"
	Unsent     Reason = "the client has not received all bytes"
	ClientLast Reason = "the client sent last"
	Doubted    Reason = "unclear which side sent last"
	Moved      Reason = "bytes moved recently"
	Paused     Reason = "the response is streaming and may continue"
)

// sighting is a connection at the last look.
type sighting struct {
	received, written uint64 // bytes from the client and from the app
	turn              turn
	weighed           bool      // weigh has run
	before            exchange  // the bytes that had been sent when the request began
	streams           bool      // the response is streaming
	spoke             time.Time // when bytes moved last
	requestedAt       time.Time // when the request began; with turn app: the last one
	reason            Reason
	answered          bool // by the counters of linkerd's proxy, since bytes moved
	remote            netip.AddrPort
	local             netip.AddrPort
}

// exchange is the traffic of a connection.
type exchange struct {
	written            uint64
	segments, requests uint32 // segments with data from the app, and from the client
}

// since is when the request began, or, without one, when bytes moved last.
func (s *sighting) since() time.Time {
	if s.requestedAt.IsZero() {
		return s.spoke
	}
	return s.requestedAt
}

// ledger infers the app's activity from looks at the kernel's table. It is not safe for concurrent use and has no
// clock: callers pass the time.
type ledger struct {
	Options

	seen     map[uint64]*sighting // open ones
	ended    map[uint64]bool      // closed by the app, not yet by the kernel
	arrivals uint64
	closed   bool                 // new connections no longer count
	answered map[uint16]time.Time // when a port had no request in flight by the counters of linkerd's proxy
	since    time.Time            // when the watch began; zero: it has not
	reports  bool                 // the kernel reports destroyed sockets
	roll     sockdiag.Roll
}

func newLedger(o Options) *ledger {
	return &ledger{
		Options: o,
		seen:    make(map[uint64]*sighting), ended: make(map[uint64]bool), answered: make(map[uint16]time.Time),
	}
}

func (g *ledger) ignores(s sockdiag.Socket) bool {
	from := s.Remote.Addr()
	return slices.ContainsFunc(g.IgnoreFrom, func(p netip.Prefix) bool { return p.Contains(from) })
}

// destroyed adds the sockets that the kernel reports as destroyed, before the look that no longer shows them. On a busy
// machine, where looks are late, most connections are only seen by their end. lost is true when there were more.
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
			g.arrived(s)
		}
	}
	if lost {
		g.arrived(sockdiag.Socket{}) // at least one
	}
}

// look adds one look.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	present := make(map[uint64]bool, len(sockets))
	for _, s := range sockets {
		if g.ignores(s) {
			continue
		}
		present[s.Cookie] = true
		was, known := g.seen[s.Cookie]
		if s.HasClosed() {
			g.end(s, known, now)
			continue
		}
		if !known {
			was = &sighting{remote: s.Remote, local: s.Local}
			g.seen[s.Cookie] = was
			g.arrived(s)
		}
		s.DropLateFIN(was.received)
		g.follow(was, s, now, known)
	}
	g.gone(present)
}

// end handles a connection that the app has closed: it may still have undelivered bytes, which a pod's network takes
// with it.
func (g *ledger) end(s sockdiag.Socket, known bool, now time.Time) {
	if !known && !g.ended[s.Cookie] && s.State != sockdiag.FinWait2 {
		g.arrived(s) // opened and served between two looks
	}
	if s.WriteQueue <= 1 { // the FIN counts as one
		delete(g.seen, s.Cookie)
		g.ended[s.Cookie] = true
		return
	}
	was := g.seen[s.Cookie]
	if was == nil {
		was = &sighting{remote: s.Remote, local: s.Local, requestedAt: now.Add(-s.LastReceived)}
		g.seen[s.Cookie] = was
	}
	was.turn, was.spoke, was.reason = app, now.Add(-s.LastSent), Unsent
}

// follow determines which side sent last on an open connection.
func (g *ledger) follow(was *sighting, s sockdiag.Socket, now time.Time, known bool) {
	received, written := s.DataReceived(), s.Acked+uint64(s.WriteQueue)
	came, went := received != was.received, written != was.written
	before := was.turn
	switch {
	case known && !came && !went:
	case received == 0 && written == 0:
		was.turn = neither
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
		g.arrived(s) // a request: during an upload the app has sent nothing
	}
	if came && (before != client || went || !known) {
		was.requestedAt = now.Add(-s.LastReceived)
	}
	was.follow(s, written, came && known)
	was.received, was.written = received, written
	was.spoke = now.Add(-min(s.LastReceived, s.LastSent))
	was.weigh(s)
	was.reason = g.judge(was, s.Unread(), s.WriteQueue, now)
}

// follow determines whether the response is streaming: in more segments than its bytes and two writes need, the last of
// them long after the request. Each of the requests before the first look may have had two.
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

// weigh looks for the client's own acknowledgement of a response. Both sides have sent in one jiffy: a request with a
// fast response, or a response and the next request. In the second case the next request has already acknowledged the
// response, so no separate ACK follows, unless the client sent that request before it read the response.
func (s *sighting) weigh(k sockdiag.Socket) {
	if (s.turn == unclear || s.turn == likely) && isAcknowledged(k) {
		s.turn = app
	}
}

// isAcknowledged reports whether the client has sent an acknowledgement by itself.
func isAcknowledged(k sockdiag.Socket) bool {
	const delayed = 500 * time.Millisecond // RFC 9293, 3.8.6.3; later ones are keep-alives
	later := k.LastReceived - k.LastAcked
	return later > 0 && later <= delayed
}

// judge returns why a connection is busy. Moved, Doubted and Paused pass with time. On HTTP/2, clients may send last
// without a request: they acknowledge settings.
func (g *ledger) judge(c *sighting, unread, unsent uint32, now time.Time) Reason {
	muxed := slices.Contains(g.MuxedPorts, c.local.Port())
	c.answered = g.answered[c.local.Port()].After(c.spoke.Add(20 * time.Millisecond)) // the kernel's clock is coarse
	switch {
	case g.Opaque, slices.Contains(g.OpaquePorts, c.local.Port()) && !(c.answered && muxed):
		return Opaque
	case unread > 0:
		return Unread
	case unsent > 0:
		return Unsent
	case c.turn == client && !muxed:
		return ClientLast
	case c.answered:
		return Idle
	case now.Before(c.spoke.Add(g.grace())):
		return Moved
	case now.Before(c.spoke.Add(doubt[c.turn])):
		return Doubted
	case c.streams && now.Before(c.spoke.Add(g.StreamPause)):
		return Paused
	}
	return Idle
}

// doubt is how long after the last byte a connection may still be busy.
var doubt = map[turn]time.Duration{unclear: doubtTime, likely: hunchTime}

func (g *ledger) grace() time.Duration {
	if g.closed {
		return min(g.IdleGrace, breath)
	}
	return g.IdleGrace
}

// next is when the first connection becomes idle by time alone; zero when none does.
func (g *ledger) next() (next time.Time) {
	for _, c := range g.seen {
		var at time.Time
		switch c.reason {
		case Moved:
			at = c.spoke.Add(g.grace())
		case Doubted:
			at = c.spoke.Add(doubt[c.turn])
		case Paused:
			at = c.spoke.Add(g.StreamPause)
		default:
			continue
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// gone handles connections that are no longer in the table.
func (g *ledger) gone(present map[uint64]bool) {
	left := func(cookie uint64) bool {
		if !present[cookie] && g.reports {
			g.roll.Left(cookie)
		}
		return !present[cookie]
	}
	maps.DeleteFunc(g.seen, func(cookie uint64, _ *sighting) bool { return left(cookie) })
	maps.DeleteFunc(g.ended, func(cookie uint64, _ bool) bool { return left(cookie) })
}

// arrived counts a new connection or request, by which a client shows that it still finds the app.
func (g *ledger) arrived(s sockdiag.Socket) {
	if !g.closed && !slices.Contains(ambientProbes, s.Remote.Addr()) {
		g.arrivals++
	}
}

// doubts lists the connections for Plane.resolve: without movement, and unclear.
func (g *ledger) doubts(now time.Time) (out []*sighting) {
	for _, c := range g.seen {
		if c.turn == unclear && !c.weighed && now.Sub(c.spoke) >= settled {
			out = append(out, c)
		}
	}
	return out
}

// assumed counts, by port, the open connections that count as idle because the app was the last to send. A response
// that pauses looks the same.
func (g *ledger) assumed() map[uint16]int {
	out := make(map[uint16]int)
	for _, c := range g.seen {
		if c.reason == Idle && c.received > 0 && c.turn != neither && !c.answered {
			out[c.local.Port()]++
		}
	}
	return out
}

func (g *ledger) activity() drain.Activity {
	a := drain.Activity{Known: true, Connections: len(g.seen), Arrivals: g.arrivals}
	if !g.reports {
		a.ArrivalsAsOf = g.since // a short connection may exist between two looks
	}
	for _, c := range g.seen {
		if c.reason != Idle {
			a.Busy++
		}
	}
	if !g.LinkerdShutdown { // by which linkerd's proxy ends its clients' connections
		a.Opaque = a.Busy // the app ends its own, whatever they carry
	}
	return a
}
