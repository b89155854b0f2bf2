package pipe

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wsFrame writes one frame of a WebSocket, unmasked.
func wsFrame(first byte, payload string) string {
	switch n := len(payload); {
	case n < 126:
		return string([]byte{first, byte(n)}) + payload
	case n < 1<<16:
		return string([]byte{first, 126, byte(n >> 8), byte(n)}) + payload
	default:
		return string([]byte{first, 127, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + payload
	}
}

// masked writes one frame as a client does.
func masked(first byte, payload string) string {
	f := []byte(wsFrame(first, payload))
	f[1] |= wsMask
	head := len(f) - len(payload)
	out := append(bytes.Clone(f[:head]), 1, 2, 3, 4)
	for i, b := range []byte(payload) {
		out = append(out, b^byte(1+i%4))
	}
	return string(out)
}

func TestFollowFrames(t *testing.T) {
	long := strings.Repeat("x", 70000)
	for _, tt := range []struct {
		name, bytes      string
		masked           bool
		frames, messages bool // whether the end is one between frames, between messages
		lost, closeFrame bool
	}{
		{name: "nothing", frames: true, messages: true},
		{name: "text", bytes: wsFrame(0x81, "hello"), frames: true, messages: true},
		{name: "of a client", bytes: masked(0x82, "hello") + masked(0x81, ""), masked: true, frames: true, messages: true},
		{name: "16 bits of length", bytes: wsFrame(0x82, long[:300]), frames: true, messages: true},
		{name: "64 bits of length", bytes: wsFrame(0x82, long), frames: true, messages: true},
		{name: "compressed", bytes: wsFrame(0xc1, "zzz"), frames: true, messages: true},
		{name: "first of two fragments", bytes: wsFrame(0x01, "he"), frames: true},
		{name: "both fragments", bytes: wsFrame(0x01, "he") + wsFrame(0x80, "llo"), frames: true, messages: true},
		{name: "a ping between fragments", bytes: wsFrame(0x01, "he") + wsFrame(0x89, "?"), frames: true},
		{name: "a ping between messages", bytes: wsFrame(0x81, "he") + wsFrame(0x89, "?"), frames: true, messages: true},
		{name: "half a header", bytes: wsFrame(0x82, long)[:5]},
		{name: "within the payload", bytes: wsFrame(0x81, "hello")[:4]},
		{name: "within the mask", bytes: masked(0x81, "hello")[:4], masked: true},
		{name: "close", bytes: wsFrame(0x88, "\x03\xe8") + "rest", closeFrame: true},

		{name: "not masked by a client", bytes: wsFrame(0x81, "hello"), masked: true, lost: true},
		{name: "masked by a server", bytes: masked(0x81, "hello"), lost: true},
		{name: "unknown opcode", bytes: wsFrame(0x83, ""), lost: true},
		{name: "unknown control frame", bytes: wsFrame(0x8b, ""), lost: true},
		{name: "continuation of nothing", bytes: wsFrame(0x80, "x"), lost: true},
		{name: "a message within a message", bytes: wsFrame(0x01, "he") + wsFrame(0x81, "x"), lost: true},
		{name: "a ping in fragments", bytes: wsFrame(0x09, "x"), lost: true},
		{name: "a long ping", bytes: wsFrame(0x89, long[:126]), lost: true},
		{name: "a length of 2^63", bytes: "\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00", lost: true},
		{name: "no frames at all", bytes: "HTTP/1.1 200 OK\r\n\r\n", lost: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, step := range []int{1, 2, 3, 1000, 1 << 20} {
				f := wsFollower{masked: tt.masked}
				for rest := []byte(tt.bytes); len(rest) > 0 && !f.closed && !f.lost; {
					n := f.follow(rest[:min(step, len(rest))], false)
					rest = rest[n:]
				}
				if f.betweenFrames() != tt.frames || f.betweenMessages() != tt.messages || f.lost != tt.lost || f.closed != tt.closeFrame {
					t.Fatalf("in steps of %d: between frames %v, messages %v, lost %v, closed %v", step, f.betweenFrames(), f.betweenMessages(), f.lost, f.closed)
				}
			}
		})
	}
}

// However the bytes are cut, a pause is at the end of a message and nowhere else.
func TestFollowFramesInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		ends := map[int]bool{}
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			fragments := rapid.IntRange(1, 4).Draw(t, "fragments")
			for i := range fragments {
				first := byte(0)
				if i == 0 {
					first = 2
				}
				if i == fragments-1 {
					first |= wsFin
				}
				all = append(all, wsFrame(first, strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 125, 126, 3000, 65536}).Draw(t, "size")))...)
				if rapid.Bool().Draw(t, "pong") && i < fragments-1 {
					all = append(all, wsFrame(0x8a, "!")...)
				}
			}
			ends[len(all)] = true
		}
		var f wsFollower
		pos := 0
		for pos < len(all) {
			piece := all[pos:min(len(all), pos+rapid.IntRange(1, 4000).Draw(t, "piece"))]
			n := f.follow(piece, true)
			if pos += n; f.betweenMessages() != ends[pos] {
				t.Fatalf("at %d: between messages %v", pos, f.betweenMessages())
			}
			if n < len(piece) && !ends[pos] {
				t.Fatalf("paused at %d, which is no end", pos)
			}
		}
	})
}

func TestAppendClose(t *testing.T) {
	plain := appendClose([]byte("x"), CodeRestart, "bye", false)
	if want := "x" + wsFrame(0x88, "\x03\xf4bye"); string(plain) != want {
		t.Errorf("%q; want %q", plain, want)
	}
	m := appendClose([]byte("x"), CodeGoingAway, "bye", true)[1:]
	payload := bytes.Clone(m[6:])
	for i := range payload {
		payload[i] ^= m[2+i%4]
	}
	if string(m[:2]) != "\x88\x85" || string(payload) != "\x03\xe9bye" {
		t.Errorf("%q carries %q", m, payload)
	}
}
