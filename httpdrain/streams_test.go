package httpdrain

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// resetsScript plays frames to a guard.
type resetsScript struct {
	*streams
	at time.Time
	id uint32
}

func newStreamsScript() *resetsScript {
	s := &resetsScript{at: time.Unix(1000, 0)}
	s.streams = newStreams(func() time.Time { return s.at })
	return s
}

func frameHead(kind, flags byte, id uint32) http2.FrameHeader {
	return http2.FrameHeader{Type: kind, Flags: flags, Stream: id}
}

func (s *resetsScript) begin() {
	s.id += 2
	_ = s.fromClient(frameHead(http2.Headers, http2.FlagEndHeaders, s.id))
}

func (s *resetsScript) cancel() error { return s.fromClient(frameHead(http2.RSTStream, 0, s.id)) }

func (s *resetsScript) answer() {
	_ = s.fromServer(frameHead(http2.Headers, 0, s.id), 0)
	_ = s.fromServer(frameHead(http2.Data, http2.FlagEndStream, s.id), 0)
}

// A connection is ended when most of its streams are reset at once, and not for anything else.
func TestResets(t *testing.T) {
	const many = 20_000
	for _, tt := range []struct {
		name  string
		play  func(s *resetsScript, i int) error
		after int // streams; 0: never
	}{
		{"each is reset", func(s *resetsScript, _ int) error { s.begin(); return s.cancel() }, http2.DefaultMaxResets},
		{"each is reset after its response", func(s *resetsScript, _ int) error { s.begin(); s.answer(); return s.cancel() }, 0},
		{"each is reset after a second", func(s *resetsScript, _ int) error { s.begin(); s.at = s.at.Add(time.Second); return s.cancel() }, 0},
		{"two of five are reset", func(s *resetsScript, i int) error {
			s.begin()
			if i%5 > 1 {
				s.answer()
			}
			return s.cancel()
		}, 0},
		{"two of three are reset, after many good ones", func(s *resetsScript, i int) error {
			s.begin()
			if i < many/2 || i%3 == 0 {
				s.answer()
				return nil
			}
			return s.cancel()
		}, many / 2},
		{"the server must reset each", func(s *resetsScript, _ int) error {
			s.begin()
			return s.fromServer(frameHead(http2.RSTStream, 0, s.id), http2.ProtocolError)
		}, http2.DefaultMaxResets},
		{"the server breaks each off", func(s *resetsScript, _ int) error {
			s.begin()
			return s.fromServer(frameHead(http2.RSTStream, 0, s.id), http2.InternalError)
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStreamsScript()
			ended := 0
			for i := range many {
				if tt.play(s, i) != nil {
					ended = i + 1
					break
				}
			}
			if tt.after == 0 && ended > 0 || tt.after > 0 && (ended < tt.after || ended > tt.after+4*http2.DefaultMaxResets) {
				t.Errorf("ended after %d streams, want %d", ended, tt.after)
			}
			if open := len(s.begun); open > 1 {
				t.Errorf("%d streams are kept", open)
			}
		})
	}
}
