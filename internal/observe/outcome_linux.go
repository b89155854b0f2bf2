package observe

import (
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// ending is the end of a connection.
type ending struct {
	at     time.Time
	fate   fate
	busy   bool // at the last look
	active bool
	sample Sample
}

// arrive counts a connection that no look has shown before.
func (g *ledger) arrive(at time.Time) {
	switch {
	case !g.begun:
	case at.After(g.result.Begin):
		g.result.Arrivals.add(1, at.Sub(g.result.Begin))
		g.lastBusy = later(g.lastBusy, at)
	default:
		g.result.Open++
	}
}

// count adds the end of a connection to the result.
func (g *ledger) count(e ending) {
	t := &g.result
	lost := func(n *int, reason Reason) {
		*n++
		e.sample.Reason, e.sample.At = reason, drain.Millis(max(e.at.Sub(t.Begin), 0))
		if len(t.Samples) < samplesMost {
			t.Samples = append(t.Samples, e.sample)
		}
	}
	switch e.fate {
	case wasReset:
		lost(&t.Lost.Reset, Reset)
	case wasUnanswered:
		lost(&t.Lost.Unanswered, Unanswered)
	case left:
		t.Left++
	case crossed:
		t.Crossed++
	case doubtful:
		t.Unclear++
		fallthrough
	case answered:
		if e.active {
			t.Answered++
			g.lastBusy = later(g.lastBusy, e.at)
		}
	}
}

// begin starts the result. refusing is the counter of resets.
func (g *ledger) begin(at time.Time, by string) {
	g.begun = true
	g.result = Termination{} // what was missed before does not matter
	g.result.Begin, g.result.BeginBy, g.lastBusy = at, by, at
	for _, c := range g.open {
		if g.arrive(c.arrived); !c.arrived.After(at) && c.busy() {
			g.result.Busy++
		}
		c.active = c.busy()
	}
	for _, e := range g.endings {
		if at.Sub(e.at) > foldTime {
			continue
		}
		if e.fate == wasReset || e.fate == wasUnanswered {
			g.result.Open++ // when the app began to end
			g.result.Busy++
		}
		e.active = e.busy
		g.count(e)
	}
	g.endings = nil
}

// refused adds the counter of resets that answered a segment without a connection. They are refusals while one of the
// app's ports has no listener.
func (g *ledger) refused(refusing int, now time.Time) {
	n := refusing - g.refusing - g.queued - g.crossings
	g.refusing, g.queued, g.crossings = refusing, 0, 0
	if !g.begun || n <= 0 || len(g.listening) == len(g.ports) {
		return
	}
	if g.options.Shared {
		g.result.ForeignResets += n
		return
	}
	g.result.Lost.Refused += n
	g.result.Arrivals.add(n, now.Sub(g.result.Begin))
	g.lastBusy = later(g.lastBusy, now)
}

// peek is the result if the observation ended now.
func (g *ledger) peek(now time.Time) Termination {
	t := g.result
	t.Samples = slices.Clone(t.Samples)
	for port := range g.ports {
		t.Ports = append(t.Ports, port)
	}
	slices.Sort(t.Ports)
	for _, c := range g.open {
		if c.missed == 0 && c.busy() {
			t.Unfinished++
		}
	}
	if g.begun {
		t.Duration = drain.Millis(max(now.Sub(t.Begin), 0))
		t.Idle = drain.Millis(max(now.Sub(g.lastBusy), 0))
	}
	if t.Judge(); t.Verdict == Clean && g.owned != nil && len(t.Ports) == 0 {
		t.Verdict = Unknown
	}
	return t
}

// conclude judges the connections that the app has closed without an answer, and whose clients have not reacted.
func (g *ledger) conclude(now time.Time) {
	for cookie, c := range g.open {
		waits := c.appFirst || c.missed == 0 && (c.State == sockdiag.FinWait2 || c.State == sockdiag.FinWait1 && c.WriteQueue <= 1)
		if waits && c.turn == client {
			delete(g.open, cookie)
			g.roll.Left(cookie)
			g.end(c, wasUnanswered, now)
		}
	}
}

// end counts a connection whose report has not come.
func (g *ledger) end(c *connection, f fate, now time.Time) {
	g.count(ending{at: now, fate: f, active: c.active, sample: Sample{Peer: c.Remote, Port: c.Local.Port(), Age: drain.Millis(c.LastReceived)}})
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
