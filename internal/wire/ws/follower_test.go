package ws

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/wire/ws/wstest"
)

func TestFollowFrames(t *testing.T) {
	long := strings.Repeat("x", 70000)
	for _, tt := range []struct {
		name, bytes      string
		masked           bool
		frames, messages bool // whether the end is one between frames, between messages
		lost, closeFrame bool
	}{
		{name: "nothing", frames: true, messages: true},
		{name: "text", bytes: wstest.Frame(0x81, "hello"), frames: true, messages: true},
		{name: "of a client", bytes: wstest.Masked(0x82, "hello") + wstest.Masked(0x81, ""), masked: true, frames: true, messages: true},
		{name: "16 bits of length", bytes: wstest.Frame(0x82, long[:300]), frames: true, messages: true},
		{name: "64 bits of length", bytes: wstest.Frame(0x82, long), frames: true, messages: true},
		{name: "compressed", bytes: wstest.Frame(0xc1, "zzz"), frames: true, messages: true},
		{name: "first of two fragments", bytes: wstest.Frame(0x01, "he"), frames: true},
		{name: "both fragments", bytes: wstest.Frame(0x01, "he") + wstest.Frame(0x80, "llo"), frames: true, messages: true},
		{name: "a ping between fragments", bytes: wstest.Frame(0x01, "he") + wstest.Frame(0x89, "?"), frames: true},
		{name: "a ping between messages", bytes: wstest.Frame(0x81, "he") + wstest.Frame(0x89, "?"), frames: true, messages: true},
		{name: "half a header", bytes: wstest.Frame(0x82, long)[:5]},
		{name: "within the payload", bytes: wstest.Frame(0x81, "hello")[:4]},
		{name: "within the mask", bytes: wstest.Masked(0x81, "hello")[:4], masked: true},
		{name: "close", bytes: wstest.Frame(0x88, "\x03\xe8") + "rest", closeFrame: true},

		{name: "not masked by a client", bytes: wstest.Frame(0x81, "hello"), masked: true, lost: true},
		{name: "masked by a server", bytes: wstest.Masked(0x81, "hello"), lost: true},
		{name: "unknown opcode", bytes: wstest.Frame(0x83, ""), lost: true},
		{name: "unknown control frame", bytes: wstest.Frame(0x8b, ""), lost: true},
		{name: "continuation of nothing", bytes: wstest.Frame(0x80, "x"), lost: true},
		{name: "a message within a message", bytes: wstest.Frame(0x01, "he") + wstest.Frame(0x81, "x"), lost: true},
		{name: "a ping in fragments", bytes: wstest.Frame(0x09, "x"), lost: true},
		{name: "a long ping", bytes: wstest.Frame(0x89, long[:126]), lost: true},
		{name: "a length of 2^63", bytes: "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", lost: true},
		{name: "no frames at all", bytes: "HTTP/1.1 200 OK\r\n\r\n", lost: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{1, 2, 3, 1000, 1 << 20} {
				f := Follower{Masked: tt.masked}
				for rest := []byte(tt.bytes); len(rest) > 0 && !f.closed && !f.lost; {
					n := f.Follow(rest[:min(step, len(rest))], AtClose)
					rest = rest[n:]
				}
				if f.BetweenFrames() != tt.frames || f.BetweenMessages() != tt.messages || f.lost != tt.lost || f.closed != tt.closeFrame {
					t.Fatalf("in steps of %d: between frames %v, messages %v, lost %v, closed %v", step, f.BetweenFrames(), f.BetweenMessages(), f.lost, f.closed)
				}
			}
		})
	}
}

// Whatever the pieces, Follow stops at the end of each message and nowhere else.
func TestFollowFramesInPieces(t *testing.T) {
	for range 100 { // without package rapid, since importers' go.sum lists what this test imports
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		var all []byte
		ends := map[int]bool{}
		for range 1 + random.IntN(8) {
			fragments := 1 + random.IntN(4)
			for i := range fragments {
				first := byte(0)
				if i == 0 {
					first = 2
				}
				if i == fragments-1 {
					first |= bitFIN
				}
				all = append(all, wstest.Frame(first, strings.Repeat("x", []int{0, 1, 125, 126, 3000, 65536}[random.IntN(6)]))...)
				if random.IntN(2) == 0 && i < fragments-1 {
					all = append(all, wstest.Frame(0x8a, "!")...)
				}
			}
			ends[len(all)] = true
		}
		var f Follower
		pos := 0
		for pos < len(all) {
			piece := all[pos:min(len(all), pos+1+random.IntN(4000))]
			n := f.Follow(piece, AtMessage)
			if pos += n; f.BetweenMessages() != ends[pos] {
				t.Fatalf("seed %d, at %d: between messages %v", seed, pos, f.BetweenMessages())
			}
			if n < len(piece) && !ends[pos] {
				t.Fatalf("seed %d: paused at %d, which is no end", seed, pos)
			}
		}
	}
}

func TestAppendClose(t *testing.T) {
	plain := AppendClose([]byte("x"), CloseServiceRestart, "bye", false)
	if want := "x" + wstest.Frame(0x88, "\x03\xf4bye"); string(plain) != want {
		t.Errorf("%q; want %q", plain, want)
	}
	m := AppendClose([]byte("x"), CloseGoingAway, "bye", true)[1:]
	payload := bytes.Clone(m[6:])
	for i := range payload {
		payload[i] ^= m[2+i%4]
	}
	if string(m[:2]) != "\x88\x85" || string(payload) != "\x03\xe9bye" {
		t.Errorf("%q carries %q", m, payload)
	}
}
