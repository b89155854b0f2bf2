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
	refusing   int       // counter at based
	based      time.Time // the last look, or before Begin the close of a listener
	queued     int       // resets since of connections that were not accepted, which the counter contains
	resets     []refusal
	attempts   int                        // those since Begin that were the proxy's attempts to connect to the app
	unheard    int                        // likewise, that were the app's answers to a proxy that had ended
	others     map[uint64]sockdiag.Socket // connections of the last look that are no client's, such as to a database
	halfClosed []halfClosed
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
	if !g.begun && len(g.closed) > 0 {
		return
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
	if g.options.Process != 0 {
		t.ForeignResets = all
		return g.lastBusy
	}
	unheard := min(g.unheard, all)
	proxys, each := min(g.attempts, all-unheard), max(g.options.Attempts, 1)
	errors := (proxys + each - 1) / each
	t.Lost.Refused = errors
	for _, h := range g.unpaired {
		if h.isInner {
			errors++
		}
	}
	t.Answered = max(0, t.Answered-errors)
	g.probes.ask()
	for others, i := proxys+unheard, 0; i < len(refusals) && others > 0; i++ {
		r := &refusals[i]
		if others > unheard {
			t.Arrivals.Last = max(t.Arrivals.Last, drain.Millis(r.now.Sub(t.Begin)))
		}
		no := min(others, r.n)
		r.n, others = r.n-no, others-no
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
	return g.probes.Refusals != nil && slices.ContainsFunc(g.resets, func(r refusal) bool {
		return r.isRefusal && r.n > 0 && g.probes.waits(r)
	})
}

// halfClosed is a connection that the app has closed, and whose peer has not: a client, or a server of the app, such as
// its database. The kernel keeps a small socket for it, in FIN_WAIT2, until the peer's FIN. Data instead, such as a
// request or TLS's close_notify, is reset like a segment without a connection, and ends the small socket (TCP_TW_RST in
// tcp_timewait_state_process); the FIN behind the data is reset, too.
type halfClosed struct {
	sockdiag.Ends
	since    time.Time // the small socket was there, if there was one
	gone     time.Time // it was not; zero: it still is
	outcome  outcome   // of a client's connection; of another one, left
	isOpaque bool      // then the data may be TLS's close_notify
}

// isOpen reports whether neither the table nor the report of a destroyed socket shows a FIN of its peer. was is the
// last sighting.
func isOpen(was, s sockdiag.Socket) bool {
	return was.Received == s.Received && !was.HasFIN()
}

// noteHalfClosed notes a destroyed socket that may have left a small one. was is the last sighting, or nil: an app that
// ends gracefully closes its listener first.
func (g *ledger) noteHalfClosed(s sockdiag.Socket, was *connection, f outcome) {
	p := halfClosed{Ends: s.Ends(), since: s.Ended, outcome: f, isOpaque: g.isOpaque(s, nil)}
	at := g.closed[s.Local.Port()]
	switch {
	case s.Acked <= s.Sent || len(g.halfClosed) >= maxBuffered:
		return
	case f == unclearCrossed:
		p.since, p.gone = g.looked, s.Ended
	case was != nil && !isOpen(was.Socket, s), was == nil && (at.IsZero() || s.Ended.Before(at)):
		return
	}
	g.halfClosed = append(g.halfClosed, p)
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
	if e.outcome != leftByClient {
		g.noteHalfClosed(s, c, e.outcome)
	}
}

// noteOther is noteReset for a destroyed socket that was no client's.
func (g *ledger) noteOther(s sockdiag.Socket) {
	attempt := s // of the proxy to connect, which the app's port has refused: its SYN was not acknowledged
	attempt.Local, attempt.Remote = s.Remote, s.Local
	_, isProxys := g.counts(attempt)
	if isProxys && s.Acked == 0 && s.Received == 0 && (g.begun || s.Ended.After(g.based)) {
		g.attempts++
	}
	if was, ok := g.others[s.Cookie]; ok {
		g.noteHalfClosed(s, &connection{Socket: was}, leftByClient)
	}
}

// explain takes the resets of half-closed connections' peers from the refusals, if a look no longer shows their small
// sockets: the reset of the last message, and one of the FIN if there are more. One that is in closedHere has received
// the peer's FIN instead.
func (g *ledger) explain(sockets []sockdiag.Socket, now time.Time, closedHere func() map[sockdiag.Ends]bool) {
	waits := make(map[sockdiag.Ends]bool)
	for _, s := range sockets {
		if s.State == sockdiag.FinWait2 && len(g.halfClosed) > 0 {
			waits[s.Ends()] = true
		}
	}
	var kept, explained []halfClosed
	for _, p := range g.halfClosed {
		isWaiting := p.gone.IsZero() && waits[p.Ends]
		if isWaiting {
			p.since = now
		} else if p.gone.IsZero() {
			p.gone = now
		}
		switch r := g.refusalOf(p); {
		case isWaiting, r == nil && !p.gone.Before(g.based): // a later counter may have its resets
			kept = append(kept, p)
		case r == nil, p.outcome != unclearCrossed && closedHere()[p.Ends]:
		default:
			r.n--
			// The others count already, or are no client's.
			if !p.isOpaque && (p.outcome == answered || p.outcome == unclearOrder || p.outcome == noRequest) {
				g.result.Unclear.Crossed++
			}
			explained = append(explained, p)
		}
	}
	g.halfClosed = kept
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
		if r.n > 0 && !r.since.After(p.gone) {
			return &g.resets[i]
		}
	}
	return nil
}
