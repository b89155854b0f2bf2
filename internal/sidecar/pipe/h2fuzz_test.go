package pipe

import (
	"slices"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
	"github.com/lastcall-dev/lastcall/internal/wire/http2/http2test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

// FuzzH2Streams lets both sides say anything: what is counted stays true.
func FuzzH2Streams(f *testing.F) {
	for _, seed := range http2test.Seeds() {
		f.Add(seed, seed, uint8(3))
	}
	f.Fuzz(func(t *testing.T, client, app []byte, turn uint8) {
		for i, in := range stormtest.Mutations(t, client, http2test.Words) {
			streamsCounted(t, in, app, turn+uint8(i))
		}
		for i, in := range stormtest.Mutations(t, app, http2test.Words) {
			streamsCounted(t, client, in, turn+uint8(i))
		}
	})
}

func streamsCounted(t *testing.T, client, app []byte, turn uint8) {
	c := following()
	sides := []struct {
		p    []byte
		held int
		end  int
		f    *http2.Follower
		v    http2.Events
	}{{p: client, f: &c.h2.up, v: upVisitor{c}}, {p: app, f: &c.h2.down, v: downVisitor{c}}}
	for sides[0].end < len(client) || sides[1].end < len(app) {
		for i := range sides {
			s := &sides[i]
			s.end = min(len(s.p), s.end+int(turn)+1)
			n, err := s.f.Follow(s.p[s.held:s.end], s.v)
			if s.held += n; err != nil {
				s.end, s.p = 0, nil
				return
			}
			c.h2.batchEndsLocked()
			if !slices.IsSortedFunc(c.h2.streams, func(a, b *stream) int { return int(a.id) - int(b.id) }) {
				t.Fatal("streams out of order")
			}
			counted := 0
			for _, s := range c.h2.streams {
				if !s.quiet {
					counted++
				}
				if s.clientEnded && s.serverEnded {
					t.Fatalf("stream %d is still open", s.id)
				}
			}
			if counted != c.h2.counted || c.busy != (counted > 0) || c.p.busy.Load() != int64(min(1, counted)) {
				t.Fatalf("%d streams count; counted %d, busy %v", counted, c.h2.counted, c.busy)
			}
		}
	}
}
