package http2

import (
	"errors"
	"testing"
	"time"
)

func TestGuard(t *testing.T) {
	const fresh, old = time.Duration(0), PrematureTime
	limits := DefaultLimits()
	ping := FrameHeader{Type: Ping, Length: 8}
	begin := func(g *Guard) {
		if err := g.StreamBegins(1); err != nil {
			t.Fatal(err)
		}
	}
	const many = 100_000
	t.Run("PING that is answered", func(t *testing.T) {
		g := &Guard{Limits: &limits}
		for i := range many {
			if g.Check(ping) != nil {
				t.Fatalf("PING %d", i)
			}
			g.Answered()
		}
	})
	t.Run("streams reset after their end", func(t *testing.T) {
		g := &Guard{Limits: &limits}
		for i := range many {
			begin(g)
			if err := g.StrayReset(); err != nil {
				t.Fatalf("reset %d: %v", i, err)
			}
		}
	})
	t.Run("acknowledgements of the client", func(t *testing.T) {
		g := &Guard{Limits: &limits}
		for i := range many {
			if g.Check(FrameHeader{Type: Ping, Length: 8, Flags: FlagAck}) != nil {
				t.Fatalf("acknowledgement %d", i)
			}
		}
	})
	t.Run("streams reset late", func(t *testing.T) {
		g := &Guard{Limits: &limits}
		for i := range many {
			begin(g)
			if err := g.StreamReset(old, false); err != nil {
				t.Fatalf("reset %d: %v", i, err)
			}
		}
	})
	t.Run("two of five streams reset at once, then all", func(t *testing.T) {
		g := &Guard{Limits: &limits}
		for i := range many {
			begin(g)
			if i%5 < 2 {
				if err := g.StreamReset(fresh, false); err != nil {
					t.Fatalf("reset %d: %v", i, err)
				}
			}
		}
		for i := 0; ; i++ { // earlier good conduct must not count for long
			begin(g)
			if err := g.StreamReset(fresh, false); errors.Is(err, FloodResets) {
				break
			} else if i > 4*limits.MaxResets {
				t.Fatal("the flood is not detected")
			}
		}
	})
}
