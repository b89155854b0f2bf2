package gateway

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// frame is one with n bytes of payload.
func frame(opcode byte, masked bool, n int) []byte {
	b := []byte{0x80 | opcode}
	var mask byte
	if masked {
		mask = 0x80
	}
	switch {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if masked {
		b = append(b, 1, 2, 3, 4)
	}
	return append(b, bytes.Repeat([]byte{0xff}, n)...)
}

// However the bytes come, next finds the ends of the frames.
func TestFrames(t *testing.T) {
	for round := range 50 {
		var all []byte
		ends := map[int]bool{0: true}
		for range 10 {
			all = append(all, frame(byte(1+rand.IntN(2)), rand.IntN(2) == 0, []int{0, 1, 125, 126, 127, 300, 65535, 65536, 70000}[rand.IntN(9)])...)
			ends[len(all)] = true
		}
		var f frames
		for at := 0; at < len(all); {
			piece := all[at:min(len(all), at+1+rand.IntN(1+round*round*40))]
			for len(piece) > 0 {
				n := f.next(piece)
				if n == 0 {
					t.Fatal("nothing is taken in")
				}
				at, piece = at+n, piece[n:]
				if f.between() != ends[at] {
					t.Fatalf("after %d bytes: between frames %v, want %v", at, f.between(), ends[at])
				}
			}
		}
	}
	var f frames
	if f.pass(frame(8, false, 2)); !f.closed {
		t.Error("a close frame went unseen")
	}
}
