// Package stormtest has fuzz targets try blind mutations of each input of their corpus in every test run. They find no
// new code paths, but a fuzzer, which measures coverage after each input, tries a hundredth of them in the same time.
package stormtest

import (
	"flag"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
)

var mutations = flag.Int("storm", 500, "how many mutations of each input of its corpus a fuzz target tries")

// most is the length of the longest mutation, bytes.
const most = 4 << 10

// Mutations returns an input of a fuzz target, and, unless a fuzzer runs, mutations of it, with their numbers. words
// are parts of the target's inputs, which blind mutations would hardly make. The input of a check that fails is logged:
//
//	go test ./internal/wire/... -run Fuzz -storm 1000000 -timeout 1h -v
func Mutations(t *testing.T, in []byte, words []string) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if flag.Lookup("test.fuzz").Value.String() != "" {
			yield(0, in)
			return
		}
		one := in
		passed := false
		defer func() {
			if !passed {
				t.Logf("the input %q, made of %q", one, in)
			}
		}()
		for i := 0; i <= *mutations && yield(i, one); i++ {
			one = slices.Clone(in)
			for range 1 + rand.IntN(6) {
				one = change(one, in, words)
			}
			one = one[:min(len(one), most)]
		}
		passed = !t.Failed()
	}
}

func change(in, whole []byte, words []string) []byte {
	at := rand.IntN(len(in) + 1)
	to := min(len(in), at+1+rand.IntN(32))
	switch rand.IntN(8) {
	case 0: // another byte
		if at < len(in) {
			in[at] = byte(rand.UintN(256))
		}
	case 1: // one bit
		if at < len(in) {
			in[at] ^= 1 << rand.IntN(8)
		}
	case 2:
		return slices.Insert(in, at, byte(rand.UintN(256)))
	case 3, 4:
		return slices.Insert(in, at, []byte(words[rand.IntN(len(words))])...)
	case 5:
		return slices.Delete(in, at, to)
	case 6: // duplicate
		return slices.Insert(in, to, in[at:to]...)
	case 7: // continue elsewhere
		return append(in[:at], whole[rand.IntN(len(whole)+1):]...)
	}
	return in
}
