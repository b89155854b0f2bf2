package pipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/must"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// grpcMessage is one of gRPC's, with a content of n bytes.
func grpcMessage(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

// At the last call a gRPC stream is cut in between two messages: the one that is
// in flight goes through, nothing follows it.
func TestH2LastMessages(t *testing.T) {
	t.Parallel()
	type step func(*http2.Framer)
	begin := func(id uint32) step { return func(f *http2.Framer) { respond(f, id, false, ":status", "200") } }
	trailers := func(id uint32) step { return func(f *http2.Framer) { respond(f, id, true, "x", "y") } }
	data := func(id uint32, b []byte) step { return func(f *http2.Framer) { _ = f.WriteData(id, false, b) } }
	ping := func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) }
	reset := func(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeInternal) }
	unavailable := func(id uint32) string {
		return fmt.Sprintf("HEADERS %d end=true grpc-status=14 grpc-message=the server is shutting down", id)
	}
	const unanswered = "HEADERS 3 end=true :status=200 grpc-status=14 grpc-message=the server is shutting down"
	half := grpcMessage(10)
	one := []step{begin(1), data(1, half[:3])}
	two := []step{begin(1), begin(3), data(1, half[:3]), data(3, half)}
	for _, tt := range []struct {
		name          string
		before, after []step // the last call
		want          []string
		endings       []string
	}{
		{"the rest of a message, nothing after it", []step{begin(1), data(1, half[:8])},
			[]step{ping, data(1, half[8:]), data(1, grpcMessage(3))},
			[]string{"DATA 1 7 bytes", unavailable(1), unanswered, "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
		{"others wait without a word", two,
			[]step{data(3, grpcMessage(5)), trailers(3), data(1, half[3:])},
			[]string{"DATA 1 12 bytes", unavailable(1), unavailable(3), "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
		{"one that ends by itself", two,
			[]step{trailers(3), data(1, half[3:])},
			[]string{"HEADERS 3 end=true ", "DATA 1 12 bytes", unavailable(1), "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14"}},
		{"a stream that the app resets", one, []step{reset},
			[]string{"RST 1 INTERNAL_ERROR", unanswered, "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14"}},
		{"no end in time", one, nil,
			[]string{unavailable(1), unanswered, "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			called := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				f := serveFrames(c)
				nextRequest(f)
				nextRequest(f)
				for _, write := range tt.before {
					write(f)
				}
				<-called
				for _, write := range tt.after {
					write(f)
				}
				_, _ = io.Copy(io.Discard, c)
			})
			p, r := startRaw(t, app, HTTP)
			r.request(1, true, ":path", "/a", "content-type", "application/grpc")
			r.request(3, true, ":path", "/b", "content-type", "application/grpc")
			r.until(func(f http2.Frame) bool { // the frames before it have arrived
				if h, ok := f.(*http2.HeadersFrame); ok {
					_, _ = r.dec.DecodeFull(h.HeaderBlockFragment())
				}
				d, ok := f.(*http2.DataFrame)
				return ok && (d.StreamID == 3 || !strings.Contains(tt.name, "wait") &&
					!strings.Contains(tt.name, "itself"))
			})
			window := patience
			if tt.after == nil {
				window = time.Second
			}
			report := lastCall(t, p, window)
			awaitFinishing(t, p)
			close(called)
			var got []string
			for _, f := range r.frames() {
				if f == "GOAWAY 2147483647 NO_ERROR" {
					continue // a frame of the app's first ones may pass after the last call has begun, and bring it
				}
				if strings.HasPrefix(f, "DATA") {
					var id, n int
					_, _ = fmt.Sscanf(f, "DATA %d", &id)
					n = strings.Count(f, `\x00`) + strings.Count(f, `\n`)
					f = fmt.Sprintf("DATA %d %d bytes", id, n)
				}
				got = append(got, f)
			}
			if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(tt.want, "\n  "))
			}
			wantEndings(t, report(), tt.endings...)
		})
	}
}

// A client that is cut within a frame, because it reads slowly or not at
// all, gets no frame of ours in its middle.
func TestH2LastCallOfAClientThatDoesNotRead(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		f := serveFrames(c)
		respond(f, 1, false, ":status", "200")
		for f.WriteData(1, false, bytes.Repeat([]byte{0xff}, 16000)) == nil {
		}
	})
	p, r := startRaw(t, app, HTTP)
	r.request(1, true, ":path", "/")
	awaitActivity(t, p, 1, 1)
	for last := -1; ; time.Sleep(50 * time.Millisecond) { // until nothing moves
		now := p.all()[0].client.Unsent()
		if now == last && now > 0 {
			break
		}
		last = now
	}
	if _, err := p.LastCall(ctx, 0); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := r.ReadFrame()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			return
		}
		if d, ok := f.(*http2.DataFrame); ok && !bytes.Equal(d.Data(), bytes.Repeat([]byte{0xff}, 16000)) {
			t.Fatalf("a frame holds something else: %x", d.Data()[:20])
		}
	}
}

// A client whose request head is too large gets a status.
func TestH2HeadTooLarge(t *testing.T) {
	app := startHTTP(t, func(http.ResponseWriter, *http.Request) {})
	for name, limits := range map[string]wirehttp2.Limits{"list": {MaxHeaderList: 1000},
		"block": {MaxHeaderBlock: 1000}} {
		t.Run(name, func(t *testing.T) {
			p := startPipe(t, app, HTTP, func(c *Config) { c.H2 = limits })
			req, _ := http.NewRequest("GET", "http://"+p.Addr(0).String(), nil)
			req.Header.Set("x", strings.Repeat("a", 2000))
			resp, err := h2Client(t).Do(req)
			must.Do(t, err)
			if body := bodyOf(resp); resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || body != "" {
				t.Errorf("%s %q", resp.Status, body)
			}
			_ = resp.Body.Close()
			if got := p.Stats(); floodsOf(got.H2) != 1 || got.Responses[4] != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}
