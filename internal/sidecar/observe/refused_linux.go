package observe

import (
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// refusals find the clients that were refused. Such a client leaves no socket, only one more reset that the namespace
// has sent without a connection. The resets of known connections are taken off, and those of half-closed ones.
type refusals struct {
	refusing      int       // counter at based
	based         time.Time // the last look, or before Begin the close of a listener
	queued        int       // resets since of connections that were not accepted, which the counter contains
	resets        []refusal
	attempts      int                        // those since Begin that were the proxy's attempts to connect to the app
	unheard       int                        // likewise, that were the app's answers to a proxy that had ended
	others        map[uint64]sockdiag.Socket // connections of the last look that are no client's, such as to a database
	halfClosed    map[ends]halfClosed
	wasHalfClosed []halfClosed // whose peers may have been reset
}

// base sets the value with which later counters of resets are compared.
func (g *ledger) base(refusing int, now time.Time) {
	// The kernel counts a connection's abort before its reset.
	g.refusing, g.based, g.queued = max(g.refusing, refusing), now, 0
}

// refused adds the counter of resets that answered a segment without a connection. They are refusals while one of the
// app's ports has no listener. Before Begin, only those since the close of a listener matter.
func (g *ledger) refused(refusing int, now time.Time) {
	n := refusing - g.refusing - g.queued
	if !g.begun {
		for _, at := range g.closed {
			if now.Sub(at) < maxClosed {
				return
			}
		}
	}
	since := g.based
	g.base(refusing, now)
	if g.begun && n > 0 {
		g.resets = append(g.resets, refusal{since, now, n, len(g.listening) < len(g.ports)})
	}
}

// refusal is how many segments without a connection were reset between two looks: refused connections, unless all
// listeners were there.
type refusal struct {
	since, now time.Time
	n          int
	isRefusal  bool
}

// addRefused adds those who were refused to a result: clients, and as the first, because an app ends before its proxy,
// the proxy's attempts to connect. The clients of these have arrived already, and the proxy has answered them with
// errors. It returns the time of the last request or refusal.
func (g *ledger) addRefused(t *Termination) (lastBusy time.Time) {
	all, busy := 0, g.lastBusy
	refusals := slices.DeleteFunc(slices.Clone(g.resets), func(r refusal) bool { return !r.isRefusal || r.n == 0 })
	for _, r := range refusals {
		all += r.n
		busy = later(busy, r.now)
	}
	if g.options.Shared {
		t.ForeignResets = all
		return g.lastBusy
	}
	unheard := min(g.unheard, all)
	all -= unheard
	proxys, each := min(g.attempts, all), max(g.options.Attempts, 1)
	errors := (proxys + each - 1) / each
	t.Lost.Refused = errors
	for _, h := range g.unpaired {
		if h.isInner {
			errors++
		}
	}
	t.Answered = max(0, t.Answered-errors)
	g.probes.ask()
	for i, r := range refusals {
		early := min(proxys, r.n)
		if proxys -= early; early > 0 {
			t.Arrivals.Last = max(t.Arrivals.Last, drain.Millis(r.now.Sub(t.Begin)))
		}
		no := min(unheard, r.n-early)
		unheard -= no
		refusals[i].n -= early + no
	}
	g.probes.explain(t.Begin, refusals, func(r refusal, isPerhaps bool) {
		if isPerhaps {
			t.Unclear.Probes++
		} else {
			t.Lost.Refused++
		}
		t.Arrivals.add(r.now.Sub(t.Begin))
	})
	return busy
}

// waitsForNode reports whether the node may have more to show of those who were refused.
func (g *ledger) waitsForNode() bool {
	g.probes.ask()
	return g.probes.refusals != nil && slices.ContainsFunc(g.resets, func(r refusal) bool {
		return r.isRefusal && r.n > 0 && g.probes.waits(r)
	})
}

// halfClosed is a connection that the app has closed, and whose peer has not: a client, or a server of the app, such as
// its database. The kernel keeps a small socket for it, in FIN_WAIT2, until the peer's FIN. Data instead, such as a
// request or TLS's close_notify, is reset like a segment without a connection, and ends the small socket (TCP_TW_RST in
// tcp_timewait_state_process); the FIN behind the data is reset, too.
type halfClosed struct {
	ends
	since    time.Time // the small socket was there, if there was one
	now      time.Time // it was not
	outcome  outcome   // of a client's connection; of another one, left
	isOpaque bool      // then the data may be TLS's close_notify
}

// isOpen reports whether neither the table nor the report of a destroyed socket shows a FIN of its peer. was is the
// last sighting.
func isOpen(was, s sockdiag.Socket) bool {
	return was.Received == s.Received &&
		(was.State == sockdiag.Established || was.State == sockdiag.FinWait1 || was.State == sockdiag.FinWait2)
}

// noteHalfClosed notes a destroyed socket that may have left a small one. was is the last sighting, or nil: an app that
// ends gracefully closes its listener first.
func (g *ledger) noteHalfClosed(s sockdiag.Socket, was *sockdiag.Socket, f outcome) {
	p := halfClosed{ends{s.Local, s.Remote}, s.Ended, s.Ended, f, g.isOpaque(s, nil)}
	at := g.closed[s.Local.Port()]
	switch {
	case s.Acked <= s.Sent || len(g.halfClosed)+len(g.wasHalfClosed) >= maxBuffered:
	case f == unclearCrossed:
		p.since = g.looked
		g.wasHalfClosed = append(g.wasHalfClosed, p)
	case was != nil && isOpen(*was, s), was == nil && !at.IsZero() && !s.Ended.Before(at):
		g.halfClosed[p.ends] = p
	}
}

// noteReset notes what a client's destroyed socket explains of the counter of resets. c is its last sighting, or nil.
func (g *ledger) noteReset(s sockdiag.Socket, c *connection, e ending) {
	isNew := g.begun || e.at.After(g.based)
	switch {
	case e.queued && e.at.After(g.based):
		g.queued++
	case e.isInner && e.outcome == leftByClient && s.WriteQueue > 1 && isNew:
		g.unheard++
	}
	switch {
	case e.outcome == leftByClient:
	case c == nil:
		g.noteHalfClosed(s, nil, e.outcome)
	default:
		g.noteHalfClosed(s, &c.Socket, e.outcome)
	}
}

// noteOther is noteReset for a destroyed socket that was no client's.
func (g *ledger) noteOther(s sockdiag.Socket) {
	if g.isAttempt(s) && (g.begun || s.Ended.After(g.based)) {
		g.attempts++
	}
	if was, ok := g.others[s.Cookie]; ok {
		g.noteHalfClosed(s, &was, leftByClient)
	}
}

// findEnded finds the half-closed connections whose small sockets a look no longer shows.
func (g *ledger) findEnded(sockets []sockdiag.Socket, now time.Time) {
	if len(g.halfClosed) == 0 {
		return
	}
	waits := make(map[ends]bool)
	for _, s := range sockets {
		if s.State == sockdiag.FinWait2 {
			waits[ends{s.Local, s.Remote}] = true
		}
	}
	for key, p := range g.halfClosed {
		if p.now = now; waits[key] {
			p.since = now
			g.halfClosed[key] = p
			continue
		}
		delete(g.halfClosed, key)
		g.wasHalfClosed = append(g.wasHalfClosed, p)
	}
}

// explain takes the resets of half-closed connections' peers from the refusals: that of the last message, and one of
// the FIN if there are more. hasFIN reports whether a peer's FIN came instead.
func (g *ledger) explain(hasFIN func(ends) bool) {
	var explained []halfClosed
	g.wasHalfClosed = slices.DeleteFunc(g.wasHalfClosed, func(p halfClosed) bool {
		r := g.refusalOf(p)
		if r == nil {
			return p.now.Before(g.based) // no later counter has its resets
		}
		if p.outcome != unclearCrossed && hasFIN(p.ends) {
			return true
		}
		r.n--
		// The others count already, or are no client's.
		if !p.isOpaque && (p.outcome == answered || p.outcome == unclearOrder || p.outcome == noRequest) {
			g.result.Unclear.Crossed++
		}
		explained = append(explained, p)
		return true
	})
	for _, p := range explained {
		if r := g.refusalOf(p); r != nil {
			r.n--
		}
	}
	// If the next look no longer shows a half-closed connection's socket, it still existed at this one.
	g.resets = slices.DeleteFunc(g.resets, func(r refusal) bool { return !r.isRefusal && r.now.Before(g.looked) })
}

// refusalOf are the latest resets among which may be that of a half-closed connection's peer, or nil.
func (g *ledger) refusalOf(p halfClosed) *refusal {
	for i, r := range slices.Backward(g.resets) {
		if r.now.Before(p.since) {
			break
		}
		if r.n > 0 && !r.since.After(p.now) {
			return &g.resets[i]
		}
	}
	return nil
}

// isDoubtful reports whether another look may explain a reset.
func (g *ledger) isDoubtful() bool { return len(g.wasHalfClosed)+len(g.halfClosed) > 0 }
