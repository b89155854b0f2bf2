package http2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	nethttp2 "golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/wire/http2/http2test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

// FuzzFrames reads bytes as frames, as x/net's Framer does: both find the same frames at the same places. The Framer
// refuses what the Follower refuses, floods excepted. What only the Framer refuses is passed on unchanged for the app
// to judge, and moves no boundary: it is always a frame whose payload the Follower skips.
func FuzzFrames(f *testing.F) {
	for _, seed := range http2test.Seeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, in := range stormtest.Mutations(t, p, http2test.Words) {
			framesAsFramer(t, in)
		}
	})
}

func framesAsFramer(t *testing.T, p []byte) {
	whole := Follower{MaxBlock: 64 << 10}
	var ends []int // of frames
	var held int   // bytes passed on
	var err error
	for end := 1; end <= len(p) && err == nil; end++ {
		var n int
		n, err = whole.Follow(p[held:end], new(recorder))
		if held += n; n > 0 && whole.left == 0 && err == nil {
			ends = append(ends, held)
		}
	}
	r := nethttp2.NewFramer(io.Discard, bytes.NewReader(p))
	r.SetMaxReadFrameSize(1<<24 - 1)
	at := 0
	for i := 0; ; i++ {
		rest := p[at:]
		if len(rest) < HeaderLen || len(rest)-HeaderLen < int(ReadHeader(rest).Length) {
			if len(ends) != i {
				t.Fatalf("%d frames; there are %d", len(ends), i)
			}
			return
		}
		header := ReadHeader(rest)
		_, theirs := r.ReadFrame()
		at += HeaderLen + int(header.Length)
		refused := i == len(ends) && err != nil
		var flood Flood
		switch {
		case refused && (theirs != nil || errors.As(err, &flood)):
			return
		case refused && header.Type == Settings && header.Length > 6*maxSettings, refused && header.Type == GoAway &&
			header.Length > maxGoAway:
			return
		case refused:
			t.Fatalf("frame %d, %+v: %v; the Framer takes it", i, header, err)
		case theirs != nil && !leftToTheApp(header):
			t.Fatalf("frame %d, %+v is taken; the Framer says %v", i, header, theirs)
		case i >= len(ends) || ends[i] != at:
			t.Fatalf("frame %d, %+v ends at %d; frames end at %v (%v)", i, header, at, ends, err)
		case theirs != nil:
			return
		case header.Type == PushPromise && !header.Has(FlagEndHeaders):
			return // the Framer does not know that CONTINUATION may follow
		}
	}
}

// leftToTheApp reports whether a frame that may be invalid is passed on unchanged.
func leftToTheApp(header FrameHeader) bool {
	switch header.Type {
	case Headers, Continuation, PushPromise, RSTStream:
		return false
	case Settings: // its values
		return header.Length%6 == 0 && header.Stream == 0
	case GoAway, Ping: // its stream
		return header.Stream != 0
	}
	return true
}

// FuzzFollow splits the bytes of a direction: the events are the same for any split.
func FuzzFollow(f *testing.F) {
	for _, seed := range http2test.Seeds() {
		f.Add(seed, uint8(0))
		f.Add(seed, uint8(7))
	}
	f.Fuzz(func(t *testing.T, p []byte, step uint8) {
		for i, in := range stormtest.Mutations(t, p, http2test.Words) {
			followedInPieces(t, in, step+uint8(i))
		}
	})
}

func followedInPieces(t *testing.T, p []byte, step uint8) {
	whole, pieces := Follower{MaxBlock: 64 << 10}, Follower{MaxBlock: 64 << 10}
	var a, c recorder
	n, err := whole.Follow(p, &a)
	var done int
	var err2 error
	for end := 0; end < len(p) && err2 == nil; {
		end = min(len(p), end+int(step)+1)
		var m int
		m, err2 = pieces.Follow(p[done:end], &c)
		done += m
	}
	if (err == nil) != (err2 == nil) || err == nil && (n != done || a.String() != c.String()) {
		t.Fatalf("whole: %d %v %s; in pieces: %d %v %s", n, err, a.String(), done, err2, c.String())
	}
}

// recorder records the events of a Follower.
type recorder struct{ strings.Builder }

func (r *recorder) Headers(id uint32, block []byte, end bool) error {
	fmt.Fprint(r, "h", id, block, end)
	return nil
}
func (r *recorder) PushPromise(id, promised uint32, block []byte) error {
	fmt.Fprint(r, "p", id, promised, block)
	return nil
}
func (r *recorder) EndStream(id uint32)      { fmt.Fprint(r, "e", id) }
func (r *recorder) Data(FrameHeader, []byte) {}
func (r *recorder) Reset(id uint32) error    { fmt.Fprint(r, "r", id); return nil }
func (r *recorder) Settings(values []byte)   { fmt.Fprint(r, "s", values) }
func (r *recorder) PingAck()                 { fmt.Fprint(r, "i") }
func (r *recorder) SettingsAck()             { fmt.Fprint(r, "a") }

func (r *recorder) WindowUpdate(stream, increment uint32) {
	fmt.Fprintf(r, "w%d+%d", stream, increment)
}
func (r *recorder) GoAway(last uint32) { fmt.Fprint(r, "g", last) }
