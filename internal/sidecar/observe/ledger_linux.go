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
	// maxEndings bounds the ends that are kept for foldTime.
	maxEndings = 1 << 15
)

// ledger follows the connections of one namespace. It has no clock and is not safe for concurrent use.
type ledger struct {
	options       Options
	owned         func(sockdiag.Socket) bool // whether a listener is the app's; nil: all are
	acks          func(ports []uint16) (answers func(local, remote netip.AddrPort) (answered, exact bool), err error)
	listeners     map[uint64]bool      // by cookie, whether it counts; closed ones until their reports
	ports         map[uint16]bool      // that have or had a listener that counts
	listening     []uint16             // that have one now
	unlisten      bool                 // a listener that counts has closed, and no look has followed
	closed        map[uint16]time.Time // when a port's first listener closed, unless a later look has shown one
	open          map[uint64]*connection
	roll          sockdiag.Roll // ends that were counted without a report
	endings       []ending      // before Begin, of the last foldTime
	evidence      map[uint16]evidence
	probes        probes
	looked        time.Time
	refusing      int       // counter at based
	based         time.Time // the last look, or before Begin the close of a listener
	queued        int       // resets since of connections that were not accepted, which the counter contains
	refusals      []refusal
	halfClosed    map[ends]halfClosed
	wasHalfClosed []halfClosed               // whose peers may have been reset
	attempts      int                        // those since Begin that were the proxy's attempts to connect to the app
	unheard       int                        // likewise, that were the app's answers to a proxy that had ended
	unpaired      []lostRequest              // lost requests that are not counted at another connection so far
	sentinels     map[uint64]bool            // whose reports are missing
	blind         bool                       // reports from before Begin are missing
	since         time.Time                  // see Watch.Reacted
	others        map[uint64]sockdiag.Socket // connections of the last look that are no client's, such as to a database

	begun    bool
	result   Termination
	lastBusy time.Time
}

func newLedger(o Options) *ledger {
	g := &ledger{
		options: o, listeners: make(map[uint64]bool), ports: make(map[uint16]bool), closed: make(map[uint16]time.Time),
		open: make(map[uint64]*connection), halfClosed: make(map[ends]halfClosed), evidence: make(map[uint16]evidence),
		probes: newProbes(o.Probes, o.Node),
	}
	g.probes.isPassed = len(o.ProxyPorts) > 0
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
	before := g.others
	g.others = make(map[uint64]sockdiag.Socket)
	for _, s := range sockets {
		counts, isInner := g.counts(s)
		if !counts && !g.options.Shared && len(g.others) < maxConnections {
			g.others[s.Cookie] = s
			if was, ok := before[s.Cookie]; ok && isLeftOf(was, s) {
				g.others[s.Cookie] = was
			}
		}
		if s.State == sockdiag.Listen || !counts {
			continue
		}
		c := g.open[s.Cookie]
		if c != nil && isLeftOf(c.Socket, s) {
			c.appFirst = true // its report follows
			continue
		}
		present[s.Cookie] = true
		if c == nil {
			if s.State == sockdiag.FinWait2 || s.State == sockdiag.LastAck || s.State == sockdiag.Closing {
				continue // its report follows; or it is a small socket of TIME_WAIT
			}
			if len(g.open) >= maxConnections {
				g.result.Unseen++
				continue
			}
			// The last look did not show it.
			c = &connection{arrived: later(arrival(s, now), g.looked), turn: turnOf(s, nil), isInner: isInner, active: g.begun}
			c.isOpaque, c.segments = s.SegmentsReceived == 0 && s.Sent > 0, s.SegmentsReceived
			if c.turn == app {
				c.part(now.Add(-s.LastSent))
			}
			if g.open[s.Cookie] = c; !isInner {
				c.probe = g.arrive(c.arrived, s.Remote)
			}
			g.noteProbe(s, c.arrived)
		} else {
			if grew := received(s) - received(c.Socket); received(s) > received(c.Socket) {
				c.active = g.begun
				c.isOpaque = c.isOpaque || c.turn == app && isShort(grew, s.SegmentsReceived-c.SegmentsReceived)
			}
			c.grow(s, now)
			c.turn = turnOf(s, c)
			c.settled = c.settled && s.Received == c.Received && s.Sent == c.Sent
		}
		if c.turn == app {
			c.answered, c.answeredSent = received(s), s.Sent
		}
		c.Socket, c.missed = s, 0
	}
	g.settle()
	for _, c := range g.open {
		if c.missed == 0 && c.busy() {
			c.active, g.lastBusy = true, now
		}
	}
	for cookie, c := range g.open {
		if present[cookie] {
			continue
		}
		// After an overrun the kernel drops reports without a sign until its buffer is empty.
		if c.missed++; g.result.Overruns == 0 || c.missed <= maxMissed {
			continue
		}
		delete(g.open, cookie)
		g.roll.Left(cookie)
		switch {
		case !c.appFirst:
			g.result.Unseen++
		case c.turn == client:
			g.end(c, unanswered, now)
		default:
			g.end(c, answered, now)
		}
	}
	g.looked = now
	for len(g.endings) > 0 && now.Sub(g.endings[0].at) > foldTime {
		g.endings = g.endings[1:]
	}
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
	g.listening, g.unlisten = g.listening[:0], false
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

// destroyed adds a socket that the kernel reports as destroyed. appFirst reports whether its TIME_WAIT socket is here.
func (g *ledger) destroyed(s sockdiag.Socket, appFirst func() bool) {
	if g.sentinels[s.Cookie] {
		delete(g.sentinels, s.Cookie)
		return
	}
	now := s.Ended
	c := g.open[s.Cookie]
	delete(g.open, s.Cookie)
	if !g.roll.Unseen(s.Cookie, c != nil) && c == nil {
		return // it has been counted without its report
	}
	counts, isInner := g.counts(s)
	if isApps, isListener := g.listeners[s.Cookie]; isListener || !counts {
		g.unlisten = g.unlisten || isApps
		g.unlistened(s)
		delete(g.listeners, s.Cookie)
		if g.isAttempt(s) && (g.begun || now.After(g.based)) {
			g.attempts++
		}
		if was, ok := g.others[s.Cookie]; ok {
			g.noteHalfClosed(s, &was, leftByClient)
		}
		return
	}
	if s.State = closed; c != nil {
		c.grow(s, now.Add(-s.LastSent))
	}
	f := g.refine(judge(s, c, appFirst), s, c, appFirst)
	g.learn(s)
	if c == nil {
		g.noteProbe(s, arrival(s, now))
	}
	queued := s.Remote.Port() == 0 && f == reset && (c == nil || c.queued())
	if queued && now.After(g.based) {
		g.queued++
	}
	if isInner && f == leftByClient && s.WriteQueue > 1 && (g.begun || now.After(g.based)) {
		g.unheard++
	}
	switch {
	case f == leftByClient:
	case c == nil:
		g.noteHalfClosed(s, nil, f)
	default:
		g.noteHalfClosed(s, &c.Socket, f)
	}
	e := ending{
		at: now, outcome: f, requests: g.requestsMost(s, c), isInner: isInner, queued: queued, arrived: arrival(s, now),
		moved: now.Add(-min(s.LastReceived, s.LastSent)), requestedAt: now.Add(-s.LastReceived),
		sample: Sample{Peer: s.Remote, Port: s.Local.Port(), Age: drain.Millis(s.LastReceived)},
	}
	if c != nil {
		e.arrived, e.known, e.busy, e.active, e.isInner, e.probe = c.arrived, true, c.busy(), c.active, c.isInner, c.probe
	}
	if c != nil && s.Remote.Port() == 0 {
		e.requestedAt = g.looked.Add(-c.LastReceived)
		e.sample.Peer, e.sample.Age = c.Remote, drain.Millis(now.Sub(e.requestedAt))
	} else if s.Remote.Port() == 0 {
		e.sample.Peer, e.sample.Age = netip.AddrPort{}, 0
	}
	if g.begun {
		g.include(e)
	} else if len(g.endings) < maxEndings {
		g.endings = append(g.endings, e)
	}
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
