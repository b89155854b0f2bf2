package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// ending is the end of a connection.
type ending struct {
	at          time.Time
	outcome     outcome
	requests    int // that it may have carried at once, at least 1
	arrived     time.Time
	moved       time.Time // data, in any direction
	requestedAt time.Time // when the client's last byte came
	known       bool      // a look has shown it; then
	busy        bool      // at that look
	active      bool      // with a request since Begin, or in flight then
	queued      bool      // the app had not accepted it
	probe       likeness
	isInner     bool // between proxy and app
	sample      Sample
}

// arrive counts a connection that no look has shown before, and returns whether it is taken for a probe. One whose peer
// the kernel has forgotten may have come earlier.
func (g *ledger) arrive(at time.Time, from netip.AddrPort) (probe likeness) {
	switch {
	case !g.begun:
	case at.After(g.result.Begin):
		if g.mayProbe(from) {
			if probe.is, probe.isCertain = g.probes.take(g.result.Begin, at, at); probe.is {
				return probe
			}
		}
		g.result.Arrivals.add(at.Sub(g.result.Begin))
		g.lastBusy = later(g.lastBusy, at)
	default:
		g.result.Open++
	}
	return probe
}

// include adds the end of a connection, after Begin or at most foldTime before it.
func (g *ledger) include(e ending) {
	isLost := e.outcome == reset || e.outcome == unanswered
	isDoubtful := e.outcome == unclearCrossed || e.outcome == unclearProtocol || e.outcome == unclearStream
	switch {
	case e.known:
	case e.at.Before(g.result.Begin) && !isLost && !isDoubtful: // none of the termination's
		return
	case e.isInner:
	default:
		if e.probe = g.arrive(e.arrived, e.sample.Peer); isLost && !e.arrived.After(g.result.Begin) {
			g.result.Busy++
		}
		e.active = isLost || e.moved.After(g.result.Begin)
	}
	g.count(e)
}

// count adds the end of a connection to the result.
func (g *ledger) count(e ending) {
	t := &g.result
	lost := func(n *int, reason Reason) {
		probe := g.probeOf(e)
		switch {
		case probe.isCertain:
			return
		case probe.is:
			t.Unclear.Probes++
			return
		case g.isCountedAtOther(e):
			return
		}
		*n++
		t.Unclear.Opaque += e.requests - 1
		e.sample.Reason, e.sample.At = reason, drain.Millis(max(e.at.Sub(t.Begin), 0))
		if len(t.Samples) < maxSamples {
			t.Samples = append(t.Samples, e.sample)
		}
	}
	switch e.outcome {
	case reset:
		lost(&t.Lost.Reset, Reset)
	case unanswered:
		lost(&t.Lost.Unanswered, Unanswered)
	case leftByClient:
		if !e.isInner {
			t.Left++
		}
	case unclearCrossed, unclearOrder, unclearProtocol, unclearStream, answered:
		switch {
		case e.outcome == answered:
		case e.outcome == unclearProtocol || e.requests > 1:
			t.Unclear.Opaque += e.requests
		case e.outcome == unclearCrossed:
			t.Unclear.Crossed++
		case e.outcome == unclearOrder:
			t.Unclear.SameTick++
		case e.outcome == unclearStream:
			t.Unclear.Streams++
		}
		if e.outcome != unclearCrossed && e.active && !e.isInner {
			t.Answered++
			g.lastBusy = later(g.lastBusy, e.at)
		}
	}
}

// begin starts the result.
func (g *ledger) begin(at time.Time, by string) {
	g.begun = true
	g.result = Termination{} // what was missed before does not matter
	g.result.Begin, g.result.BeginBy, g.lastBusy = at, by, at
	if g.blind {
		g.result.Overruns++
	}
	for _, c := range g.open {
		if c.active = c.busy(); c.isInner {
			continue
		}
		if g.arrive(c.arrived, c.Remote); !c.arrived.After(at) && c.active {
			g.result.Busy++
		}
	}
	for _, e := range g.endings {
		if !e.at.Before(g.from(at)) {
			e.known, e.active = false, e.busy
			g.include(e)
		}
	}
	g.endings = nil
}

// from is since when an end belongs to a termination that begins at.
func (g *ledger) from(at time.Time) time.Time {
	if from := at.Add(-foldTime); g.since.IsZero() || from.Before(g.since) {
		return from
	}
	return later(g.since, at.Add(-bufferTime))
}

// peek is the result if the observation ended now.
func (g *ledger) peek(now time.Time) Termination {
	t := g.result
	t.Samples = slices.Clone(t.Samples)
	lastBusy := g.addRefused(&t)
	for port := range g.ports {
		t.Ports = append(t.Ports, port)
	}
	slices.Sort(t.Ports)
	for _, c := range g.open {
		if c.missed > 0 || c.isInner || !c.busy() {
			continue
		}
		if n := g.requestsMost(c.Socket, c); n > 1 || g.protocolOf(c.Socket, c) == Opaque {
			t.Unclear.Opaque += n
		} else {
			t.Unclear.Unfinished++
		}
	}
	if g.begun {
		t.Duration = drain.Millis(max(now.Sub(t.Begin), 0))
		t.Idle = drain.Millis(max(now.Sub(lastBusy), 0))
	}
	if t.Judge(); t.Verdict == VerdictClean && g.owned != nil && len(t.Ports) == 0 {
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
			g.end(c, unanswered, now)
		case !waits && c.missed > 0:
			g.result.Unseen++
		default:
			continue
		}
		delete(g.open, cookie)
		g.roll.Left(cookie)
	}
}

// end counts a connection whose report has not come.
func (g *ledger) end(c *connection, f outcome, now time.Time) {
	f = g.refine(f, c.Socket, c, func() bool { return true })
	g.count(ending{
		at: now, outcome: f, requests: g.requestsMost(c.Socket, c), isInner: c.isInner, active: c.active,
		requestedAt: g.looked.Add(-c.LastReceived),
		sample:      Sample{Peer: c.Remote, Port: c.Local.Port(), Age: drain.Millis(c.LastReceived)},
	})
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
