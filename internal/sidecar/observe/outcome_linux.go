package observe

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// ending is the end of a connection, with its last state.
type ending struct {
	*connection
	at      time.Time
	outcome outcome
	known   bool // a look since Begin has shown it
	queued  bool // the app had not accepted it
}

// begin starts the result with the connections of a look, and with those that ended before it.
func (g *ledger) begin(at time.Time, by string, before []ending) {
	g.begun = true
	g.result.Begin, g.result.BeginBy = at, by
	g.lastBusy = at
	for _, c := range g.open {
		if c.active = c.busy(); c.isInner {
			continue
		}
		if c.isProbe = g.arrive(c.arrived, c.Remote, c.Local.Port()); !c.arrived.After(at) && c.active {
			g.result.Busy++
		}
	}
	for _, e := range before {
		if !e.at.Before(g.from(at)) {
			g.include(e)
		}
	}
}

// from is since when an end belongs to a termination that begins at.
func (g *ledger) from(at time.Time) time.Time {
	if from := at.Add(-foldTime); g.since.IsZero() || from.Before(g.since) {
		return from
	}
	return later(g.since, at.Add(-bufferTime))
}

// arrive counts a connection that no look has shown before, and returns whether it is taken for a probe. One whose peer
// the kernel has forgotten may have come earlier.
func (g *ledger) arrive(at time.Time, from netip.AddrPort, port uint16) (isProbe bool) {
	switch {
	case !g.begun:
	case !at.After(g.result.Begin):
		g.result.Open++
	case g.takeProbe(at, from, port):
		return true
	default:
		g.result.Arrivals.add(at.Sub(g.result.Begin))
		g.lastBusy = later(g.lastBusy, at)
	}
	return false
}

// include adds the end of a connection, after Begin or a little before it.
func (g *ledger) include(e ending) {
	isLost := e.outcome == reset || e.outcome == unanswered
	isDoubtful := e.outcome == unclearCrossed || e.outcome == unclearProtocol || e.outcome == unclearStream ||
		e.outcome == unclearOrder && g.endedBehindListener(e.Socket)
	switch {
	case e.known:
	case e.at.Before(g.result.Begin) && !isLost && !isDoubtful: // none of the termination's
		return
	case e.isInner:
	default:
		if e.isProbe = g.arrive(e.arrived, e.Remote, e.Local.Port()); isLost && !e.arrived.After(g.result.Begin) {
			g.result.Busy++
		}
		e.active = isLost || e.at.Add(-min(e.LastReceived, e.LastSent)).After(g.result.Begin)
	}
	g.count(e)
}

// count adds the end of a connection to the result.
func (g *ledger) count(e ending) {
	t := &g.result
	switch e.outcome {
	case reset:
		g.lose(e, &t.Lost.Reset, Reset)
	case unanswered:
		g.lose(e, &t.Lost.Unanswered, Unanswered)
	case leftByClient:
		if !e.isInner {
			t.Left++
		}
	case unclearCrossed:
		t.Unclear.Crossed++
	case unclearProtocol:
		t.Unclear.Opaque += e.requests()
	case unclearOrder:
		t.Unclear.SameTick++
	case unclearStream:
		t.Unclear.Streams++
	}
	looksAnswered := slices.Contains([]outcome{answered, unclearOrder, unclearProtocol, unclearStream}, e.outcome)
	if looksAnswered && e.active && !e.isInner {
		t.Answered++
		g.lastBusy = later(g.lastBusy, e.at)
	}
}

// lose counts a lost request, unless it may be a probe's or has been counted at its other connection.
func (g *ledger) lose(e ending, n *int, reason Reason) {
	t := &g.result
	switch {
	case g.isProbe(e):
		t.Unclear.Probes++
		return
	case g.isCountedAtOther(e):
		return
	}
	*n++
	if len(t.Samples) < maxSamples {
		t.Samples = append(t.Samples, Sample{Peer: e.Remote, Port: e.Local.Port(), Reason: reason,
			At: drain.Millis(max(e.at.Sub(t.Begin), 0)), Age: drain.Millis(e.LastReceived)})
	}
}

// peek is the result if the observation ended now.
func (g *ledger) peek(now time.Time) Termination {
	t := g.result
	t.Samples = slices.Clone(t.Samples)
	lastBusy := g.addRefused(&t)
	t.Ports = slices.Sorted(maps.Keys(g.ports))
	for _, c := range g.open {
		if c.missed > 0 || c.isInner || !c.busy() {
			continue
		}
		if g.isOpaque(c.Socket, c) {
			t.Unclear.Opaque += c.requests()
		} else {
			t.Unclear.Unfinished++
		}
	}
	if g.begun {
		t.Duration = drain.Millis(max(now.Sub(t.Begin), 0))
		t.Idle = drain.Millis(max(now.Sub(lastBusy), 0))
	}
	if t.Judge(); t.Verdict == VerdictClean && g.options.Process != 0 && len(t.Ports) == 0 {
		t.Verdict = VerdictUnknown
	}
	return t
}

// conclude judges the connections that the app has closed without an answer, and whose clients have not reacted. One
// that has left the table and whose report has not come is unseen.
func (g *ledger) conclude(now time.Time) {
	for cookie, c := range g.open {
		isFinSent := c.State == sockdiag.FinWait2 || c.State == sockdiag.FinWait1 && c.WriteQueue <= 1
		waits := c.appFirst || c.missed == 0 && isFinSent
		switch {
		case waits && c.turn == client:
			f := g.refine(unanswered, c.Socket, c, func() bool { return true })
			c.age(now.Sub(g.looked))
			g.count(ending{connection: c, at: now, outcome: f, known: true})
		case !waits && c.missed > 0:
			g.result.Unseen++
		default:
			continue
		}
		delete(g.open, cookie)
	}
}

// A pod with a sidecar has two connections for a request: the client's to the sidecar, and the sidecar's to the app,
// the inner one. Each shows what the other does not. If the app ends first, a sidecar that knows HTTP answers the
// client with an error, and only the inner one ends without an answer; if the sidecar ends first, only the client's
// does.

// isWithin reports whether a connection to an address of the namespace comes from the namespace itself.
func isWithin(to, from netip.Addr) bool {
	return to.IsLoopback() || from.IsLoopback() || to == from || from == istio.Source6 ||
		tcp.Sources4.Contains(from) || tcp.Sources6.Contains(from)
}

// lostRequest is one of a client's connection to the sidecar or of an inner one.
type lostRequest struct {
	isInner     bool
	requestedAt time.Time // when its last byte came
}

const (
	passTime    = 250 * time.Millisecond // a sidecar passes a request on within this, also on a busy machine
	maxUnpaired = 1 << 12                // lost requests whose other connection is looked for
)

// isCountedAtOther reports whether a lost request has been counted at its other connection: a sidecar that relays bytes
// relays the end, too, and a pod that is killed loses both.
func (g *ledger) isCountedAtOther(e ending) bool {
	if len(g.options.ProxyPorts) == 0 || !e.isInner && !slices.Contains(g.options.ProxyPorts, e.Local.Port()) {
		return false
	}
	one := lostRequest{e.isInner, e.at.Add(-e.LastReceived)}
	for i, other := range g.unpaired {
		if other.isInner != one.isInner && one.requestedAt.Sub(other.requestedAt).Abs() <= passTime {
			g.unpaired = slices.Delete(g.unpaired, i, i+1)
			return true
		}
	}
	if len(g.unpaired) < maxUnpaired {
		g.unpaired = append(g.unpaired, one)
	}
	return false
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
