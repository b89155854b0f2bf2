package observe

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Any number of watches that look whenever they may use together at most a twentieth of a core, in equal parts; a few
// cheap ones are held only by their interval.
func TestPacer(t *testing.T) {
	for _, tt := range []struct {
		watches int
		cost    time.Duration
		want    time.Duration // between the looks of a watch
	}{
		{1, time.Millisecond, interval},
		{1, 4 * time.Millisecond, 80 * time.Millisecond},
		{20, 50 * time.Microsecond, interval},
		{20, 4 * time.Millisecond, 1600 * time.Millisecond},
		{100, 4 * time.Millisecond, 8 * time.Second},
	} {
		p := pacer{share: 20}
		start := time.Unix(1e9, 0)
		due, last, pause := make([]time.Time, tt.watches), make([]time.Time, tt.watches), make([]time.Duration, tt.watches)
		for i := range due {
			due[i] = start // all begin at once
		}
		for now := start; now.Before(start.Add(30 * time.Second)); now = now.Add(time.Millisecond) {
			for i := range due {
				if !now.Before(due[i]) {
					pause[i], last[i] = now.Sub(last[i]), now
					due[i] = later(now.Add(interval), p.reserve(now, tt.cost))
				}
			}
		}
		for i, got := range pause {
			if got < tt.want || got > tt.want+time.Duration(tt.watches)*time.Millisecond {
				t.Errorf("%d watches, %v each: watch %d looks every %v; want %v", tt.watches, tt.cost, i, got, tt.want)
			}
		}
	}
}

// What need not look pays nothing, and leaves its part to the others.
func TestPacerUnused(t *testing.T) {
	p := pacer{share: 20}
	now := time.Unix(1e9, 0)
	for range 10 {
		p.reserve(now, 4*time.Millisecond)
	}
	now = now.Add(time.Second)
	if got := p.reserve(now, 4*time.Millisecond).Sub(now); got != 80*time.Millisecond {
		t.Errorf("the next look comes %v later", got)
	}
}

func TestStill(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, tt := range map[string]struct {
		c    *connection
		more func(*ledger)
		want bool
	}{
		"idle":              {&connection{turn: app, settled: true}, nil, true},
		"in flight":         {&connection{turn: client, settled: true}, nil, false},
		"unread":            {&connection{turn: app, settled: true, Socket: sockdiag.Socket{ReadQueue: 1}}, nil, false},
		"turn in doubt":     {&connection{turn: unclear, Socket: sockdiag.Socket{Sent: 1}}, nil, false},
		"end not reported":  {&connection{turn: app, settled: true, missed: 1}, nil, false},
		"no listener yet":   {nil, func(g *ledger) { g.ports = nil }, false},
		"a closed listener": {nil, func(g *ledger) { g.listening = nil }, false},
		"an overrun":        {nil, func(g *ledger) { g.result.Overruns = 1 }, false},
	} {
		g := newLedger(Options{})
		g.ports[8080], g.listening, g.looked = true, []uint16{8080}, now
		if tt.c != nil {
			g.open[1] = tt.c
		}
		if tt.more != nil {
			tt.more(g)
		}
		if got := g.still(); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		g.age(now.Add(time.Second))
		if c := g.open[1]; c != nil && (c.LastReceived != time.Second || c.LastSent != time.Second || c.LastAcked != time.Second) {
			t.Errorf("%s: the last segments came %v, %v and %v ago", name, c.LastReceived, c.LastSent, c.LastAcked)
		}
	}
}
