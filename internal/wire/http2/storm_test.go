package http2

import (
	"testing"

	"github.com/lastcall-dev/lastcall/internal/wire/http2/http2test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

func TestStorm(t *testing.T) {
	target := func(name string, check func(*testing.T, *stormtest.Storm)) stormtest.Target {
		return stormtest.Target{Name: name, Words: http2test.Words, Check: check}
	}
	frames := target("FuzzFrames", func(t *testing.T, s *stormtest.Storm) { framesAsFramer(t, s.Input()) })
	follow := target("FuzzFollow", func(t *testing.T, s *stormtest.Storm) { followedInPieces(t, s.Input(), s.Small()) })
	frames.Seeds, follow.Seeds = http2test.Seeds(), http2test.Seeds()
	stormtest.Run(t, frames, follow,
		target("FuzzFields", func(t *testing.T, s *stormtest.Storm) { fieldsAsNet(t, s.Input(), uint16(s.Rand.IntN(5000))) }),
		target("FuzzHuffman", func(t *testing.T, s *stormtest.Storm) { huffmanAsNet(t, s.Input()) }),
	)
}
