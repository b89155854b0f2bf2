package http2

import (
	"errors"
	"testing"
	"time"
)

func TestGuard(t *testing.T) {
	const fresh, old = time.Duration(0), PrematureTime
	limits := DefaultLimits()
	check := func(g *Guard, flags byte) error { return g.Check(FrameHeader{Type: Ping, Length: 8, Flags: flags}) }
	for name, step := range map[string]func(g *Guard, i int) error{
		"PING that is answered": func(g *Guard, _ int) error {
			defer g.Answered()
			return check(g, 0)
		},
		"streams reset after their end":     func(g *Guard, _ int) error { return errors.Join(g.StreamBegins(1), g.StrayReset()) },
		"acknowledgements of the client":    func(g *Guard, _ int) error { return check(g, FlagAck) },
		"streams reset late":                func(g *Guard, _ int) error { return errors.Join(g.StreamBegins(1), g.StreamReset(old, false)) },
		"two of five streams reset at once": twoOfFive,
	} {
		t.Run(name, func(t *testing.T) {
			g := &Guard{Limits: &limits}
			for i := range 100_000 {
				if err := step(g, i); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
			// Earlier good conduct must not count for long.
			for i := 0; !errors.Is(errors.Join(g.StreamBegins(1), g.StreamReset(fresh, false)), FloodResets); i++ {
				if i > 4*limits.MaxResets {
					t.Fatal("a flood of resets after that is not detected")
				}
			}
		})
	}
}

func twoOfFive(g *Guard, i int) error {
	if err := g.StreamBegins(1); err != nil || i%5 > 1 {
		return err
	}
	return g.StreamReset(0, false)
}
