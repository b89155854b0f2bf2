package observe

import (
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// halfClosed is a connection that the app has closed, and whose peer has not: a client, or a server of the app, such as
// its database. The kernel keeps a small socket for it, in FIN_WAIT2, until the peer's FIN. Data instead, such as a
// request or TLS's close_notify, is reset like a segment without a connection, and ends the small socket (TCP_TW_RST in
// tcp_timewait_state_process); the FIN behind the data is reset, too.
type halfClosed struct {
	ends
	since time.Time // the small socket was there, if there was one
	now   time.Time // it was not
	fate  fate      // of a client's connection; of another one, left
	isTLS bool      // then the data is close_notify
}

// isOpen reports whether neither the table nor the report of a destroyed socket shows a FIN of its peer. was is the
// last sighting.
func isOpen(was, s sockdiag.Socket) bool {
	return was.Received == s.Received && (was.State == sockdiag.Established || was.State == sockdiag.FinWait1 || was.State == sockdiag.FinWait2)
}

// noteHalfClosed notes a destroyed socket that may have left a small one. was is the last sighting, or nil: an app that
// ends gracefully closes its listener first.
func (g *ledger) noteHalfClosed(s sockdiag.Socket, was *sockdiag.Socket, f fate) {
	p := halfClosed{ends{s.Local, s.Remote}, s.Ended, s.Ended, f, g.protocolOf(s, nil) == TLS}
	at := g.closed[s.Local.Port()]
	switch {
	case s.Acked <= s.Sent || len(g.halfClosed)+len(g.wasHalfClosed) >= endingsMost:
	case f == crossed:
		p.since = g.looked
		g.wasHalfClosed = append(g.wasHalfClosed, p)
	case was != nil && isOpen(*was, s), was == nil && !at.IsZero() && !s.Ended.Before(at):
		g.halfClosed[p.ends] = p
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
		if p.fate != crossed && hasFIN(p.ends) {
			return true
		}
		r.n--
		if !p.isTLS && (p.fate == answered || p.fate == doubtful || p.fate == nothing) { // others count already, or are no client's
			g.result.Maybe.Crossed++
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
	g.refusals = slices.DeleteFunc(g.refusals, func(r refusal) bool { return !r.isRefusal && r.now.Before(g.looked) })
}

// refusalOf are the latest resets among which may be that of a half-closed connection's peer, or nil.
func (g *ledger) refusalOf(p halfClosed) *refusal {
	for i, r := range slices.Backward(g.refusals) {
		if r.now.Before(p.since) {
			break
		}
		if r.n > 0 && !r.since.After(p.now) {
			return &g.refusals[i]
		}
	}
	return nil
}

// isDoubtful reports whether another look may explain a reset.
func (g *ledger) isDoubtful() bool {
	return len(g.wasHalfClosed)+len(g.halfClosed) > 0
}
