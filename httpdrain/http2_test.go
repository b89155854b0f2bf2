package httpdrain

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// A client that fails open requests at a GOAWAY gets only the last one, when it has none; one that is orderly gets the first
// one at once. Both get the whole response.
func TestGoAwayByClient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		client   string
		settings []http2.Setting
		want     string // the last streams of the GOAWAYs
	}{
		{"hyper-h2", []http2.Setting{{ID: 1, Val: 4096}, {ID: 4, Val: 65535}, {ID: 5, Val: 16384}}, "[1]"},
		{"curl", []http2.Setting{{ID: 3, Val: 100}, {ID: 2, Val: 0}}, "[2147483647 1]"},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS=%v", tt.client, secure), func(t *testing.T) {
				t.Parallel()
				s := play(t, nil)
				f := s.framer(t, secure, tt.settings...)
				ask(t, f, 1, "/held")
				<-s.began
				_ = s.Drain(t.Context())
				_ = s.CloseIdle(t.Context(), 0)
				var last []uint32
				answered := false
				for released := false; ; {
					if !released && (tt.client == "hyper-h2" || len(last) > 0) {
						released = true
						close(s.release)
					}
					frame, err := f.ReadFrame()
					if err != nil {
						if !errors.Is(err, io.EOF) {
							t.Error(err)
						}
						break
					}
					switch frame := frame.(type) {
					case *http2.GoAwayFrame:
						last = append(last, frame.LastStreamID)
					case *http2.DataFrame:
						answered = answered || frame.StreamEnded()
					}
				}
				if !answered || fmt.Sprint(last) != tt.want {
					t.Errorf("answered: %v; GOAWAYs with last streams %v, want %s", answered, last, tt.want)
				}
			})
		}
	}
}

// TestCancelledRequest: a connection whose client has cancelled its request ends when the handler has, although net/http
// calls it idle before and sends nothing after.
func TestCancelledRequest(t *testing.T) {
	t.Parallel()
	s := play(t, nil)
	f := s.framer(t, false, http2.Setting{ID: 1, Val: 4096}, http2.Setting{ID: 4, Val: 65535}, http2.Setting{ID: 5, Val: 16384})
	ask(t, f, 1, "/stubborn")
	<-s.began
	_ = s.Drain(t.Context())
	_ = s.CloseIdle(t.Context(), 0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	must.Do(t, f.WriteRSTStream(1, http2.ErrCodeCancel))
	polltest.Eventually(t, "the last GOAWAY is due", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.conns {
			if c.state == http.StateIdle && time.Since(c.since) > 100*time.Millisecond {
				return true
			}
		}
		return false
	})
	close(s.release)
	must.Do(t, <-closed)
}

// TestUnencryptedHTTP2: net/http hands a connection with prior knowledge of HTTP/2 to the TLSNextProto "unencrypted_http2"
// (golang/go#67816). It has read the preface, and the *tls.Conn wraps the connection. Nothing documents this.
func TestUnencryptedHTTP2(t *testing.T) {
	ln := loopback(t)
	const next = "what follows the preface"
	got := make(chan error, 1)
	server := &http.Server{Protocols: all(), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(*http.Server, *tls.Conn, http.Handler) {}, // or net/http would configure its own HTTP/2
		"unencrypted_http2": func(_ *http.Server, tc *tls.Conn, _ http.Handler) {
			inner, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn })
			if !ok {
				got <- fmt.Errorf("the connection is a %T without UnencryptedNetConn", tc.NetConn())
				return
			}
			b := make([]byte, len(next))
			if _, err := io.ReadFull(inner.UnencryptedNetConn(), b); err != nil || string(b) != next {
				got <- fmt.Errorf("read %q, %w: want %q", b, err, next)
				return
			}
			got <- nil
		},
	}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		_ = server.Close()
		<-served
	}()
	c := dial(t, ln.Addr().String(), false, nil)
	send(t, c, http2.ClientPreface+next)
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("net/http does not use TLSNextProto for HTTP/2 without TLS")
	}
}

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

func frameHead(kind, flags byte, id uint32) wirehttp2.FrameHeader {
	return wirehttp2.FrameHeader{Type: kind, Flags: flags, Stream: id}
}

func (s *resetsScript) begin() {
	s.id += 2
	_ = s.fromClient(frameHead(wirehttp2.Headers, wirehttp2.FlagEndHeaders, s.id))
}

func (s *resetsScript) cancel() error { return s.fromClient(frameHead(wirehttp2.RSTStream, 0, s.id)) }

func (s *resetsScript) answer() {
	_ = s.fromServer(frameHead(wirehttp2.Headers, 0, s.id), 0)
	_ = s.fromServer(frameHead(wirehttp2.Data, wirehttp2.FlagEndStream, s.id), 0)
}

// A connection is ended when most of its streams are reset at once, and not for anything else.
func TestResets(t *testing.T) {
	const many = 20_000
	for _, tt := range []struct {
		name  string
		play  func(s *resetsScript, i int) error
		after int // streams; 0: never
	}{
		{"each is reset", func(s *resetsScript, _ int) error { s.begin(); return s.cancel() }, wirehttp2.DefaultMaxResets},
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
			return s.fromServer(frameHead(wirehttp2.RSTStream, 0, s.id), wirehttp2.ProtocolError)
		}, wirehttp2.DefaultMaxResets},
		{"the server breaks each off", func(s *resetsScript, _ int) error {
			s.begin()
			return s.fromServer(frameHead(wirehttp2.RSTStream, 0, s.id), wirehttp2.InternalError)
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
			if tt.after == 0 && ended > 0 || tt.after > 0 && (ended < tt.after || ended > tt.after+4*wirehttp2.DefaultMaxResets) {
				t.Errorf("ended after %d streams, want %d", ended, tt.after)
			}
			if open := len(s.begun); open > 1 {
				t.Errorf("%d streams are kept", open)
			}
		})
	}
}
