package pipe

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

var stormTime = flag.Duration("storm", 0, "how long TestStorm mutates for each target; by default a moment")

// stormMoment is how many inputs of each target every run of the tests sees.
const stormMoment = 20_000

// TestStorm is what the fuzz targets check, of inputs that are mutated blindly from
// their corpus: it finds no new paths, but sees a hundred times as many inputs on
// those that are known as a fuzzer, which looks after each.
//
//	go test ./internal/pipe -run TestStorm -storm 10m -timeout 1h -v
func TestStorm(t *testing.T) {
	for target, check := range map[string]func(*testing.T, *storm){
		"FuzzHTTP1Requests":  func(t *testing.T, s *storm) { requestsAsNetHTTP(t, s.input()) },
		"FuzzHTTP1Responses": func(t *testing.T, s *storm) { responsesAsNetHTTP(t, s.input(), s.rand.IntN(8) == 0) },
		"FuzzChunked":        func(t *testing.T, s *storm) { chunkedInPieces(t, s.input(), s.small()) },
		"FuzzH2Frames":       func(t *testing.T, s *storm) { framesAsFramer(t, s.input()) },
		"FuzzH2Follow":       func(t *testing.T, s *storm) { followedInPieces(t, s.input(), s.small()) },
		"FuzzH2Streams":      func(t *testing.T, s *storm) { streamsCounted(t, s.input(), s.input(), s.small()) },
		"FuzzH2Fields":       func(t *testing.T, s *storm) { fieldsAsNet(t, s.input(), uint16(s.rand.IntN(5000))) },
		"FuzzH2Huffman":      func(t *testing.T, s *storm) { huffmanAsNet(t, s.input()) },
	} {
		t.Run(target, func(t *testing.T) {
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
			for ; n < stormMoment || n%1000 > 0 || time.Since(began) < *stormTime; n++ {
				s.inputs = s.inputs[:0]
				check(t, s)
			}
			t.Logf("%d inputs in %v", n, time.Since(began).Round(time.Second))
		})
	}
}

// storm makes inputs of one target.
type storm struct {
	seed   uint64
	rand   *rand.Rand
	corpus [][]byte
	words  []string
	inputs [][]byte // of the check under way
}

// newStorm reads the target's corpus, in the format of go test.
func newStorm(t *testing.T, target string) *storm {
	s := &storm{seed: rand.Uint64(), words: httpWords}
	s.rand = rand.New(rand.NewPCG(s.seed, 0))
	if strings.Contains(target, "H2") {
		s.words = h2Words
	}
	files, _ := filepath.Glob("testdata/fuzz/" + target + "/*")
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
	switch {
	case len(s.corpus) == 0:
		t.Fatalf("no corpus of %s", target)
	case strings.HasPrefix(target, "FuzzH2F"): // frames, and what follows them
		s.corpus = append(s.corpus, frameSeeds()...)
	case target == "FuzzHTTP1Requests":
		for _, c := range readSmuggling(t) {
			s.corpus = append(s.corpus, []byte(c.bytes))
		}
	}
	return s
}

// Words of the protocols, which blind bytes would hardly make.
var (
	httpWords = []string{"\r\n", "\r\n\r\n", "\n", "\r", "\r\n ", "\r\n\t", ":", " ", "\t", ",", ";", "\x00", "\x0b", "\xa0",
		"Content-Length: 3\r\n", "Content-Length: 03\r\n", "Content-Length: 3, 3\r\n", "content-length:0\r\n", "Transfer-Encoding: chunked\r\n",
		"transfer-encoding:\tchunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding : chunked\r\n",
		"Host: a\r\n", "Connection: close\r\n", "Upgrade: h2c\r\n", "3\r\nabc\r\n", "0\r\n\r\n", "0\r\nA: b\r\n\r\n", "00000000000000003\r\n", ";x=\"\r\n\"",
		"GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n", "CONNECT a:1 HTTP/1.1\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 100 \r\n", "HTTP/1.1 304 x\r\n"}
	h2Words = []string{"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x00\x04\x01\x00\x00\x00\x00", "\x00\x00\x01\x01\x05\x00\x00\x00\x01\x82", "\x00\x00\x01\x01\x04\x00\x00\x00\x03\x84",
		"\x00\x00\x00\x09\x04\x00\x00\x00\x01", "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08", "\x00\x00\x00\x00\x01\x00\x00\x00\x01", "\x20", "\x3f\xe1\x1f", "\x82\x84\x86", "\x40\x01a\x01b", "\x7f\xff\xff\xff\x0f", "\xff"}
)

func (s *storm) small() uint8 { return uint8(s.rand.IntN(16)) }

// input is one of the corpus with a few changes.
func (s *storm) input() []byte {
	in := slices.Clone(s.any())
	for range 1 + s.rand.IntN(6) {
		in = s.change(in)
	}
	in = in[:min(len(in), 4<<10)]
	s.inputs = append(s.inputs, in)
	return in
}

func (s *storm) any() []byte { return s.corpus[s.rand.IntN(len(s.corpus))] }

func (s *storm) change(in []byte) []byte {
	at := s.rand.IntN(len(in) + 1)
	to := min(len(in), at+1+s.rand.IntN(32))
	switch s.rand.IntN(8) {
	case 0: // another byte
		if at < len(in) {
			in[at] = byte(s.rand.UintN(256))
		}
	case 1: // one bit
		if at < len(in) {
			in[at] ^= 1 << s.rand.IntN(8)
		}
	case 2:
		return slices.Insert(in, at, byte(s.rand.UintN(256)))
	case 3, 4:
		return slices.Insert(in, at, []byte(s.words[s.rand.IntN(len(s.words))])...)
	case 5:
		return slices.Delete(in, at, to)
	case 6: // once more
		return slices.Insert(in, to, in[at:to]...)
	case 7: // go on as another
		other := s.any()
		return append(in[:at], other[s.rand.IntN(len(other)+1):]...)
	}
	return in
}
