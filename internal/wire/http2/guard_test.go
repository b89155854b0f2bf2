package http2

import (
	"encoding/binary"
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

// A stream may send what the client has allowed for certain: a larger first window counts when the client knows that it
// has arrived, a smaller one at once.
func TestWindows(t *testing.T) {
	first := func(n uint32) []byte {
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, settingInitialWindowSize), n)
	}
	w := NewWindows()
	var stream Window
	want := func(allowed int) {
		t.Helper()
		if !w.Allow(stream, allowed) || w.Allow(stream, allowed+1) {
			t.Errorf("%+v, %d: does not allow exactly %d", w, stream, allowed)
		}
	}
	want(65535)
	stream.Sends(65000)
	w.Conn.Sends(65000)
	want(535)
	stream.Grows(1000)
	want(535)
	w.Conn.Grows(1 << 20)
	want(1535)
	w.Announce(first(100_000))
	want(1535)
	w.Acknowledge()
	want(1535 + 100_000 - 65535)
	w.Announce(first(65535))
	want(1535)
	w.Announce(first(200_000))
	w.Acknowledge()
	want(1535)
	w.Acknowledge()
	want(1535 + 200_000 - 65535)
	w.Announce(first(0))
	if w.Allow(stream, 0) {
		t.Error("a window below zero allows an empty frame of data")
	}
}
