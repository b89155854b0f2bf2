package observe

import (
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

const (
	// maxConnections bounds the connections that are followed; the end of further ones is unseen.
	maxConnections = 1 << 17
	// maxListeners bounds the listeners that are remembered, closed ones included.
	maxListeners = 1 << 12
	// foldTime is how long before Begin an end still belongs to the termination.
	foldTime = time.Second
)

// ledger follows the connections of one namespace. It has no clock and is not safe for concurrent use.
type ledger struct {
	options        Options
	acks           sockets.Acks
	listeners      map[uint64]bool      // by cookie, whether it counts; closed ones until their reports
	ports          map[uint16]bool      // that have or had a listener that counts
	listening      []uint16             // that have one now
	listenerClosed bool                 // one that counts, and no look has followed
	closed         map[uint16]time.Time // when a port's first listener closed, unless a later look has shown one
	exited         map[uint16]time.Time // when a port's last listener closed, with or without a successor
	open           map[uint64]*connection
	evidence       map[uint16]evidence
	looked         time.Time
	since          time.Time     // see Watch.Reacted
	unpaired       []lostRequest // that are not counted at another connection so far
	probes         probes
	refusals

	begun    bool
	result   Termination
	lastBusy time.Time
}

func newLedger(o Options) *ledger {
	return &ledger{
		options: o, listeners: make(map[uint64]bool), ports: make(map[uint16]bool),
		closed: make(map[uint16]time.Time), exited: make(map[uint16]time.Time),
		open: make(map[uint64]*connection), evidence: make(map[uint16]evidence), probes: newProbes(o),
	}
}

// states are those of listeners and of connections that are not yet at rest.
var states = sockdiag.Of(sockdiag.Listen, sockdiag.Established, sockdiag.CloseWait,
	sockdiag.FinWait1, sockdiag.FinWait2, sockdiag.Closing, sockdiag.LastAck)

// counts reports whether a socket is a client's connection, to the app or to its proxy, or isInner: the proxy's to the
// app, not from 127.0.0.1, from where another container of the pod connects, such as the app to its cache.
func (g *ledger) counts(s sockdiag.Socket) (counts, isInner bool) {
	if !g.ports[s.Local.Port()] {
		return false, false
	}
	if g.options.Process != 0 || s.Remote.Port() == 0 || !isWithin(s.Local.Addr(), s.Remote.Addr()) {
		return true, false
	}
	isInner = len(g.options.ProxyPorts) > 0 && !slices.Contains(g.options.ProxyPorts, s.Local.Port()) &&
		(!s.Remote.Addr().IsLoopback() || s.Remote.Addr() == istio.Source4)
	return isInner, isInner
}

// look adds a look at the table, without the sockets that the kernel has reported since.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	g.listen(sockets)
	present := make(map[uint64]bool, len(sockets))
	others := make(map[uint64]sockdiag.Socket)
	for _, s := range sockets {
		counts, isInner := g.counts(s)
		switch c := g.open[s.Cookie]; {
		case s.State == sockdiag.Listen:
		case !counts && g.options.Process == 0 && len(others) < maxConnections:
			others[s.Cookie] = s
			if was, ok := g.others[s.Cookie]; ok && isLeftOf(was, s) {
				others[s.Cookie] = was
			}
		case !counts:
		case c != nil && isLeftOf(c.Socket, s):
			c.appFirst = true // its report follows
		case c != nil:
			present[s.Cookie] = true
			g.see(c, s, now)
		case s.State == sockdiag.FinWait2 || s.State == sockdiag.LastAck || s.State == sockdiag.Closing:
			// Its report follows; or it is a small socket of TIME_WAIT.
		case len(g.open) >= maxConnections:
			g.result.Unseen++
		default:
			present[s.Cookie] = true
			g.meet(s, isInner, now)
		}
	}
	g.others = others
	g.settle()
	for cookie, c := range g.open {
		switch isPresent := present[cookie]; {
		case isPresent && c.busy():
			c.active, g.lastBusy = true, now
		case !isPresent: // its report follows, but perhaps not after an overrun
			if c.missed++; c.missed > maxMissed && (!g.begun || g.result.Overruns > 0) {
				delete(g.open, cookie)
				g.result.Unseen++
			}
		}
	}
	g.looked = now
}

// meet adds a connection that no look has shown before.
func (g *ledger) meet(s sockdiag.Socket, isInner bool, now time.Time) {
	c := &connection{
		Socket: s, arrived: later(arrival(s, now), g.looked), turn: turnOf(s, nil), isInner: isInner, active: g.begun,
		isOpaque: s.SegmentsReceived == 0 && s.Sent > 0,
		segments: max(s.SegmentsReceived, 1) - 1, // the last one may be in flight
	}
	if c.turn == app {
		c.part(now.Add(-s.LastSent))
	}
	c.noteAnswer()
	if g.open[s.Cookie] = c; !isInner {
		g.probes.note(s, c.arrived)
		c.isProbe = g.arrive(c.arrived, s.Remote, s.Local.Port())
	}
}

// see adds what another look shows of a connection.
func (g *ledger) see(c *connection, s sockdiag.Socket, now time.Time) {
	s.DropLateFIN(c.DataReceived())
	if c.came(s) {
		c.active = g.begun
		segments := s.SegmentsReceived - c.SegmentsReceived
		c.isOpaque = c.isOpaque || c.turn == app && isShort(s.DataReceived()-c.DataReceived(), segments)
	}
	c.grow(s, now)
	c.turn = turnOf(s, c)
	c.settled = c.settled && s.Received == c.Received && s.Sent == c.Sent
	c.Socket, c.missed = s, 0
	c.noteAnswer()
}

// isLeftOf reports whether s is the small socket of a connection that this side closed first.
func isLeftOf(was, s sockdiag.Socket) bool {
	return s.State == sockdiag.FinWait2 && s.Received == 0 && was.Received > 0
}

// still reports whether a look would show what the last one did, unless segments have come or gone: without a listener
// that has closed, a request in flight, or a turn or an end in doubt.
func (g *ledger) still() bool {
	if len(g.ports) == 0 || len(g.listening) < len(g.ports) || g.result.Overruns > 0 {
		return false
	}
	return !g.has(func(c *connection) bool { return c.missed > 0 || c.busy() || c.isInDoubt() })
}

// has reports whether there is such a connection.
func (g *ledger) has(is func(*connection) bool) bool {
	for _, c := range g.open {
		if is(c) {
			return true
		}
	}
	return false
}

// settle resolves the turns of connections on which both sides sent in one tick, and that have been silent for so long
// that the kernel has sent the delayed acknowledgements: see sockets.Acks.InStride.
func (g *ledger) settle() {
	const delayed = 60 * time.Millisecond // half as long again as the kernel's delay at its shortest (TCP_DELACK_MIN)
	var doubts []*connection
	for _, c := range g.open {
		if c.State == sockdiag.Established && c.isInDoubt() && c.LastReceived > delayed {
			doubts = append(doubts, c)
		}
	}
	if len(doubts) == 0 {
		return
	}
	answers, err := g.acks.InStride(slices.Collect(maps.Keys(g.ports)))
	if err != nil { // at the next look
		return
	}
	for _, c := range doubts {
		switch answered, exact := answers(c.Socket); {
		case answered:
			c.turn = app
		case exact:
			c.turn = client
		}
		c.settled = true
	}
}

// listen notes the listeners.
func (g *ledger) listen(sockets []sockdiag.Socket) {
	g.listening, g.listenerClosed = g.listening[:0], false
	if len(g.listeners) >= maxListeners {
		clear(g.listeners)
	}
	own := sync.OnceValue(func() map[uint32]bool { return sockdiag.Inodes(process.Family(g.options.Process)) })
	for _, s := range sockets {
		if s.State != sockdiag.Listen {
			continue
		}
		port := s.Local.Port()
		counts, known := g.listeners[s.Cookie]
		if !known {
			counts = !slices.Contains(g.options.IgnorePorts, port) &&
				(len(g.options.Ports) == 0 || slices.Contains(g.options.Ports, port)) &&
				(g.options.Process == 0 && !s.Local.Addr().IsLoopback() || g.options.Process != 0 && own()[s.Inode])
			g.listeners[s.Cookie] = counts
		}
		if counts {
			g.ports[port] = true
			delete(g.closed, port)
			if !slices.Contains(g.listening, port) {
				g.listening = append(g.listening, port)
			}
		}
	}
}

// arrival estimates when a connection that is seen for the first time began: the kernel's times start at the handshake,
// so this is exact for a client's first request, and otherwise too late.
func arrival(s sockdiag.Socket, now time.Time) time.Time {
	if s.Remote.Port() == 0 { // cleared: see judge
		return now
	}
	return now.Add(-max(s.LastReceived, s.LastSent))
}

// unlistened notes the close of a listener, and reports whether the port had no earlier one.
func (g *ledger) unlistened(s sockdiag.Socket) bool {
	port := s.Local.Port()
	if !g.listeners[s.Cookie] {
		return false
	}
	if g.exited[port] = s.Ended; !g.closed[port].IsZero() {
		return false
	}
	g.closed[port] = s.Ended
	return true
}

// note notes what a client's connection that has ended shows of others. c is its last sighting, or nil.
func (g *ledger) note(s sockdiag.Socket, c *connection) {
	counts, isInner := g.counts(s)
	if g.learn(s); c == nil && counts && !isInner {
		g.probes.note(s, arrival(s, s.Ended))
	}
}

// destroyed judges a socket that the kernel reports as destroyed; counts is false if it was no client's connection.
// appFirst reports whether its TIME_WAIT socket is here.
func (g *ledger) destroyed(s sockdiag.Socket, appFirst func() bool) (e ending, isClients bool) {
	now := s.Ended
	c := g.open[s.Cookie]
	delete(g.open, s.Cookie)
	counts, isInner := g.counts(s)
	if isApps, isListener := g.listeners[s.Cookie]; isListener || !counts {
		g.listenerClosed = g.listenerClosed || isApps
		g.unlistened(s)
		delete(g.listeners, s.Cookie)
		g.noteOther(s)
		return e, false
	}
	last := s // with what a reset has cleared
	if s.Remote.Port() == 0 {
		if last.Remote = (netip.AddrPort{}); c != nil {
			c.age(now.Sub(g.looked))
			last, last.Ended = c.Socket, now
		}
	}
	if s.State = closed; c != nil {
		c.grow(s, now.Add(-s.LastSent))
	}
	f := g.refine(judge(s, c, appFirst), last, c, appFirst)
	if g.begun {
		g.note(s, c)
	}
	e = ending{
		connection: c, at: now, outcome: f, known: g.begun && c != nil,
		queued: s.Remote.Port() == 0 && f == reset && (c == nil || c.queued()),
	}
	if c == nil {
		e.connection = &connection{arrived: arrival(s, now), isInner: isInner}
	}
	g.noteReset(s, c, e)
	e.Socket = last
	return e, true
}

// isClosing reports whether the app has closed connections whose end the kernel still has to report.
func (g *ledger) isClosing() bool {
	return g.has(func(c *connection) bool { return c.HasClosed() || c.missed > 0 })
}
