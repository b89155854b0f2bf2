// Package stormtest runs the checks of fuzz targets on blind mutations of their corpus. It finds no new code paths, but
// in the same time it tries a hundred times as many inputs as a fuzzer, which measures coverage after each.
package stormtest

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var duration = flag.Duration("storm", 0, "how long each storm mutates inputs; by default a moment")

// least is the number of inputs that every run tries.
const least = 20_000

// Target is a fuzz target.
type Target struct {
	Name  string // of the function, and of its folder in testdata/fuzz
	Words []string
	Seeds [][]byte // in addition to the corpus
	Check func(*testing.T, *Storm)
}

// Run tries the targets as parallel subtests:
//
//	go test ./internal/wire/... -run TestStorm -storm 10m -timeout 1h -v
func Run(t *testing.T, targets ...Target) {
	for _, target := range targets {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, target)
			defer func() {
				panicked := recover()
				if panicked != nil {
					t.Errorf("panic: %v\n%s", panicked, debug.Stack())
				}
				if t.Failed() {
					t.Errorf("seed %d, of the inputs %q", s.seed, s.inputs)
				}
			}()
			began, n := time.Now(), 0
			for ; n < least || n%1000 > 0 || time.Since(began) < *duration; n++ {
				s.inputs = s.inputs[:0]
				target.Check(t, s)
			}
			t.Logf("%d inputs in %v", n, time.Since(began).Round(time.Second))
		})
	}
}

// Storm makes the inputs of one target.
type Storm struct {
	Rand *rand.Rand

	seed   uint64
	corpus [][]byte
	words  []string
	inputs [][]byte // of the check that is running
}

// newStorm reads the target's corpus, in the format of go test.
func newStorm(t *testing.T, target Target) *Storm {
	s := &Storm{seed: rand.Uint64(), words: target.Words}
	s.Rand = rand.New(rand.NewPCG(s.seed, 0))
	files, _ := filepath.Glob("testdata/fuzz/" + target.Name + "/*")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			quoted, ok := strings.CutPrefix(strings.TrimSpace(line), "[]byte(")
			if !ok {
				continue
			}
			input, err := strconv.Unquote(strings.TrimSuffix(quoted, ")"))
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			s.corpus = append(s.corpus, []byte(input))
		}
	}
	if len(s.corpus) == 0 {
		t.Fatalf("no corpus of %s", target.Name)
	}
	s.corpus = append(s.corpus, target.Seeds...)
	return s
}

// Small returns a small number, such as the length of a piece.
func (s *Storm) Small() uint8 { return uint8(s.Rand.IntN(16)) }

// Input returns one input of the corpus with a few changes.
func (s *Storm) Input() []byte {
	in := slices.Clone(s.any())
	for range 1 + s.Rand.IntN(6) {
		in = s.change(in)
	}
	in = in[:min(len(in), 4<<10)]
	s.inputs = append(s.inputs, in)
	return in
}

func (s *Storm) any() []byte { return s.corpus[s.Rand.IntN(len(s.corpus))] }

func (s *Storm) change(in []byte) []byte {
	at := s.Rand.IntN(len(in) + 1)
	to := min(len(in), at+1+s.Rand.IntN(32))
	switch s.Rand.IntN(8) {
	case 0: // another byte
		if at < len(in) {
			in[at] = byte(s.Rand.UintN(256))
		}
	case 1: // one bit
		if at < len(in) {
			in[at] ^= 1 << s.Rand.IntN(8)
		}
	case 2:
		return slices.Insert(in, at, byte(s.Rand.UintN(256)))
	case 3, 4:
		return slices.Insert(in, at, []byte(s.words[s.Rand.IntN(len(s.words))])...)
	case 5:
		return slices.Delete(in, at, to)
	case 6: // duplicate
		return slices.Insert(in, to, in[at:to]...)
	case 7: // continue as another
		other := s.any()
		return append(in[:at], other[s.Rand.IntN(len(other)+1):]...)
	}
	return in
}
