package pipe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// frameSeeds are conversations, whole and broken.
func frameSeeds() [][]byte {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	w.AllowIllegalWrites = true
	seeds := [][]byte{}
	seed := func(write func()) {
		b.Reset()
		write()
		seeds = append(seeds, bytes.Clone(b.Bytes()))
	}
	seed(func() {
		_ = w.WriteSettings(http2.Setting{ID: http2.SettingHeaderTableSize, Val: 100})
		_ = w.WriteSettingsAck()
		_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, PadLength: 3, Priority: http2.PriorityParam{StreamDep: 3}})
		_ = w.WriteContinuation(1, true, []byte{0x84})
		_ = w.WriteData(1, true, []byte("hello"))
		_ = w.WriteDataPadded(1, true, []byte("hello"), make([]byte, 9))
		_ = w.WriteRSTStream(3, http2.ErrCodeCancel)
		_ = w.WritePing(false, [8]byte{})
		_ = w.WriteWindowUpdate(0, 1)
		_ = w.WritePriority(5, http2.PriorityParam{})
		_ = w.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: []byte{0x82}, EndHeaders: true, PadLength: 1})
		_ = w.WriteRawFrame(0xfa, 0xff, 0, []byte("unknown"))
		_ = w.WriteGoAway(1, http2.ErrCodeNo, []byte("why"))
	})
	seed(func() { _ = w.WriteData(1, true, make([]byte, wholeFrame+1)) })
	for kind := range http2.FrameType(0x0b) {
		for _, stream := range []uint32{0, 1} {
			for _, n := range []int{0, 4, 5, 8} {
				seed(func() {
					_ = w.WriteRawFrame(kind, 0x0d, stream, make([]byte, n))
					_ = w.WritePing(true, [8]byte{})
				})
			}
		}
	}
	return seeds
}

// FuzzH2Frames reads bytes as frames, as x/net's Framer does: both see the same
// frames at the same places. What ours refuses the Framer refuses too, but for what
// is too much of something. What the Framer refuses and ours does not is passed on as
// it came, to be judged by the app, and moves no boundary: it is always a frame that
// is not looked into.
func FuzzH2Frames(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed)
	}
	f.Fuzz(framesAsFramer)
}

func framesAsFramer(t *testing.T, p []byte) {
	whole := follower{maxBlock: 64 << 10}
	var ends []int // of frames
	var held int   // bytes passed on
	var err error
	for end := 1; end <= len(p) && err == nil; end++ {
		var n int
		n, err = whole.follow(p[held:end], new(recorder))
		if held += n; n > 0 && whole.left == 0 && err == nil {
			ends = append(ends, held)
		}
	}
	r := http2.NewFramer(io.Discard, bytes.NewReader(p))
	r.SetMaxReadFrameSize(1<<24 - 1)
	at := 0
	for i := 0; ; i++ {
		rest := p[at:]
		if len(rest) < wirehttp2.HeaderLen || len(rest)-wirehttp2.HeaderLen < int(readFrame(rest).length) {
			if len(ends) != i {
				t.Fatalf("%d frames; there are %d", len(ends), i)
			}
			return
		}
		header := readFrame(rest)
		_, theirs := r.ReadFrame()
		at += wirehttp2.HeaderLen + int(header.length)
		refused := i == len(ends) && err != nil
		var tooMuch flood
		switch {
		case refused && (theirs != nil || errors.As(err, &tooMuch)):
			return
		case refused && header.kind == wirehttp2.Settings && header.length > 6*maxSettings, refused && header.kind == wirehttp2.GoAway && header.length > maxGoAway:
			return
		case refused:
			t.Fatalf("frame %d, %+v: %v; the Framer takes it", i, header, err)
		case theirs != nil && !leftToTheApp(header):
			t.Fatalf("frame %d, %+v is taken; the Framer says %v", i, header, theirs)
		case i >= len(ends) || ends[i] != at:
			t.Fatalf("frame %d, %+v ends at %d; frames end at %v (%v)", i, header, at, ends, err)
		case theirs != nil:
			return
		case header.kind == wirehttp2.PushPromise && !header.has(wirehttp2.FlagEndHeaders):
			return // the Framer does not know that CONTINUATION may follow
		}
	}
}

// leftToTheApp says whether a frame that may be wrong is passed on as it is.
func leftToTheApp(header frame) bool {
	switch header.kind {
	case wirehttp2.Headers, wirehttp2.Continuation, wirehttp2.PushPromise, wirehttp2.RSTStream:
		return false
	case wirehttp2.Settings: // its values
		return header.length%6 == 0 && header.stream == 0
	case wirehttp2.GoAway, wirehttp2.Ping: // its stream
		return header.stream != 0
	}
	return true
}

// FuzzH2Follow cuts the bytes of a direction: however that is done, what is
// understood is the same.
func FuzzH2Follow(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed, uint8(0))
		f.Add(seed, uint8(7))
	}
	f.Fuzz(followedInPieces)
}

func followedInPieces(t *testing.T, p []byte, step uint8) {
	whole, pieces := follower{maxBlock: 64 << 10}, follower{maxBlock: 64 << 10}
	var a, c recorder
	n, err := whole.follow(p, &a)
	var done int
	var err2 error
	for end := 0; end < len(p) && err2 == nil; {
		end = min(len(p), end+int(step)+1)
		var m int
		m, err2 = pieces.follow(p[done:end], &c)
		done += m
	}
	if (err == nil) != (err2 == nil) || err == nil && (n != done || a.String() != c.String()) {
		t.Fatalf("whole: %d %v %s; in pieces: %d %v %s", n, err, a.String(), done, err2, c.String())
	}
}

// FuzzH2Streams lets both sides say anything: what is counted stays true.
func FuzzH2Streams(f *testing.F) {
	for _, seed := range frameSeeds() {
		f.Add(seed, seed, uint8(3))
	}
	f.Fuzz(streamsCounted)
}

func streamsCounted(t *testing.T, client, app []byte, turn uint8) {
	c := following()
	sides := []struct {
		p    []byte
		held int
		end  int
		f    *follower
		v    visitor
	}{{p: client, f: &c.h2.up, v: upVisitor{c}}, {p: app, f: &c.h2.down, v: downVisitor{c}}}
	for sides[0].end < len(client) || sides[1].end < len(app) {
		for i := range sides {
			s := &sides[i]
			s.end = min(len(s.p), s.end+int(turn)+1)
			n, err := s.f.follow(s.p[s.held:s.end], s.v)
			if s.held += n; err != nil {
				s.end, s.p = 0, nil
				return
			}
			c.batchEnds()
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

// recorder writes down what a follower tells.
type recorder struct{ strings.Builder }

func (r *recorder) headers(id uint32, block []byte, end bool) error {
	fmt.Fprint(r, "h", id, block, end)
	return nil
}
func (r *recorder) promise(id, promised uint32, block []byte) error {
	fmt.Fprint(r, "p", id, promised, block)
	return nil
}
func (r *recorder) end(id uint32)          { fmt.Fprint(r, "e", id) }
func (r *recorder) data(frame, []byte)     {}
func (r *recorder) reset(id uint32) error  { fmt.Fprint(r, "r", id); return nil }
func (r *recorder) settings(values []byte) { fmt.Fprint(r, "s", values) }
func (r *recorder) pingAck()               { fmt.Fprint(r, "i") }
func (r *recorder) settingsAck()           { fmt.Fprint(r, "a") }
func (r *recorder) goAway(last uint32)     { fmt.Fprint(r, "g", last) }
