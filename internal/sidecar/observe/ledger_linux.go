package observe

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
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
	owned          func(sockdiag.Socket) bool // whether a listener is the app's; nil: all are
	acks           func(ports []uint16) (answers func(local, remote netip.AddrPort) (answered, exact bool), err error)
	listeners      map[uint64]bool      // by cookie, whether it counts; closed ones until their reports
	ports          map[uint16]bool      // that have or had a listener that counts
	listening      []uint16             // that have one now
	listenerClosed bool                 // one that counts, and no look has followed
	closed         map[uint16]time.Time // when a port's first listener closed, unless a later look has shown one
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
	g := &ledger{
		options: o, listeners: make(map[uint64]bool), ports: make(map[uint16]bool), closed: make(map[uint16]time.Time),
		open: make(map[uint64]*connection), evidence: make(map[uint16]evidence), probes: newProbes(o),
		refusals: refusals{halfClosed: make(map[ends]halfClosed)},
	}
	if o.Process != 0 {
		g.owned = func(s sockdiag.Socket) bool { return inodes(o.Process)[s.Inode] }
	}
	return g
}

// states are those of listeners and of connections that are not yet at rest.
var states = sockdiag.Of(sockdiag.Listen, sockdiag.Established, sockdiag.CloseWait,
	sockdiag.FinWait1, sockdiag.FinWait2, sockdiag.Closing, sockdiag.LastAck)

// counts reports whether a socket is a client's connection, to the app or to its proxy, or isInner: the proxy's to the
// app.
func (g *ledger) counts(s sockdiag.Socket) (counts, isInner bool) {
	if !g.ports[s.Local.Port()] {
		return false, false
	}
	if g.options.Shared || s.Remote.Port() == 0 || !isWithin(s.Local.Addr(), s.Remote.Addr()) {
		return true, false
	}
	isInner = g.isInner(s.Remote.Addr(), s.Local.Port())
	return isInner, isInner
}

// look adds a look at the table, without the sockets that the kernel has reported since.
func (g *ledger) look(sockets []sockdiag.Socket, now time.Time) {
	g.listen(sockets)
	g.findEnded(sockets, now)
	present := make(map[uint64]bool, len(sockets))
	others := make(map[uint64]sockdiag.Socket)
	for _, s := range sockets {
		counts, isInner := g.counts(s)
		switch c := g.open[s.Cookie]; {
		case s.State == sockdiag.Listen:
		case !counts && !g.options.Shared && len(others) < maxConnections:
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
		switch {
		case present[cookie]:
			if c.busy() {
				c.active, g.lastBusy = true, now
			}
		case c.isReported:
		case g.begun && g.result.Overruns == 0: // its report follows
			c.missed++
		default: // or not
			if c.missed++; c.missed > maxMissed {
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
		isOpaque: s.SegmentsReceived == 0 && s.Sent > 0, segments: s.SegmentsReceived,
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
	if grew := received(s) - received(c.Socket); received(s) > received(c.Socket) {
		c.active = g.begun
		c.isOpaque = c.isOpaque || c.turn == app && isShort(grew, s.SegmentsReceived-c.SegmentsReceived)
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
	for _, c := range g.open {
		if c.missed > 0 || c.busy() || !c.settled && c.Sent > 0 && c.LastReceived == c.LastSent {
			return false
		}
	}
	return true
}

// age is a look at sockets that are still.
func (g *ledger) age(now time.Time) {
	for _, c := range g.open {
		c.LastReceived += now.Sub(g.looked)
		c.LastSent += now.Sub(g.looked)
		c.LastAcked += now.Sub(g.looked)
	}
	g.looked = now
}

// settle resolves the turns of silent connections.
func (g *ledger) settle() {
	var doubts []*connection
	for _, c := range g.open {
		if c.unsettled() {
			doubts = append(doubts, c)
		}
	}
	if len(doubts) == 0 || g.acks == nil {
		return
	}
	if answers, err := g.acks(slices.Collect(maps.Keys(g.ports))); err == nil { // otherwise at the next look
		for _, c := range doubts {
			c.settle(answers(c.Local, c.Remote))
		}
	}
}

// listen notes the listeners.
func (g *ledger) listen(sockets []sockdiag.Socket) {
	g.listening, g.listenerClosed = g.listening[:0], false
	if len(g.listeners) >= maxListeners {
		clear(g.listeners)
	}
	for _, s := range sockets {
		if s.State != sockdiag.Listen {
			continue
		}
		port := s.Local.Port()
		counts, known := g.listeners[s.Cookie]
		if !known {
			counts = !slices.Contains(g.options.IgnorePorts, port) &&
				(len(g.options.Ports) == 0 || slices.Contains(g.options.Ports, port)) &&
				(!s.Local.Addr().IsLoopback() || g.options.Shared) && (g.owned == nil || g.owned(s))
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
	if !g.listeners[s.Cookie] || !g.closed[port].IsZero() {
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
	if s.State = closed; c != nil {
		c.grow(s, now.Add(-s.LastSent))
	}
	f := g.refine(judge(s, c, appFirst), s, c, appFirst)
	if g.begun {
		g.note(s, c)
	}
	e = ending{
		at: now, outcome: f, requests: requestsMost(s, c), isInner: isInner, arrived: arrival(s, now),
		queued:      s.Remote.Port() == 0 && f == reset && (c == nil || c.queued()),
		wasAnswered: s.Sent > 0 || c != nil && c.Sent > 0,
		moved:       now.Add(-min(s.LastReceived, s.LastSent)), requestedAt: now.Add(-s.LastReceived),
		sample: Sample{Peer: s.Remote, Port: s.Local.Port(), Age: drain.Millis(s.LastReceived)},
	}
	if c != nil {
		e.arrived, e.known, e.busy, e.active, e.isInner, e.isProbe = c.arrived, true, c.busy(), c.active, c.isInner, c.isProbe
	}
	switch {
	case s.Remote.Port() != 0:
	case c != nil:
		e.requestedAt = g.looked.Add(-c.LastReceived)
		e.sample.Peer, e.sample.Age = c.Remote, drain.Millis(now.Sub(e.requestedAt))
	default:
		e.sample.Peer, e.sample.Age = netip.AddrPort{}, 0
	}
	g.noteReset(s, c, e)
	return e, true
}

// left counts the connections that are still open.
func (g *ledger) left() (n int) {
	for _, c := range g.open {
		if c.missed == 0 && !c.isInner {
			n++
		}
	}
	return n
}

// closing counts the connections that the app has closed and whose end the kernel still has to report.
func (g *ledger) closing() (n int) {
	for _, c := range g.open {
		if c.State != sockdiag.Established && c.State != sockdiag.CloseWait || c.missed > 0 {
			n++
		}
	}
	return n
}
