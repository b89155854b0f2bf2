package pipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// grpcMessage is one of gRPC's, with a content of n bytes.
func grpcMessage(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

// At the last call a gRPC stream is cut in between two messages: the one that is
// in flight goes through, nothing follows it.
func TestH2LastMessages(t *testing.T) {
	t.Parallel()
	begin := func(f *http2.Framer, id uint32) { respond(f, id, false, ":status", "200") }
	trailers := func(f *http2.Framer, id uint32) { respond(f, id, true, "x", "y") }
	unavailable := func(id uint32) string {
		return fmt.Sprintf("HEADERS %d end=true grpc-status=14 grpc-message=the server is shutting down", id)
	}
	half := grpcMessage(10)
	two := func(f *http2.Framer) {
		begin(f, 1)
		begin(f, 3)
		_ = f.WriteData(1, false, half[:3])
		_ = f.WriteData(3, false, half)
	}
	for _, tt := range []struct {
		name    string
		before  func(f *http2.Framer) // the last call
		after   func(f *http2.Framer)
		want    []string
		endings []string
	}{
		{"the rest of a message, nothing after it",
			func(f *http2.Framer) { begin(f, 1); _ = f.WriteData(1, false, half[:8]) },
			func(f *http2.Framer) {
				_ = f.WritePing(false, [8]byte{})
				_ = f.WriteData(1, false, half[8:])
				_ = f.WriteData(1, false, grpcMessage(3))
			},
			[]string{"DATA 1 7 bytes", unavailable(1), "HEADERS 3 end=true :status=200 grpc-status=14 grpc-message=the server is shutting down", "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
		{"others wait without a word",
			two,
			func(f *http2.Framer) {
				_ = f.WriteData(3, false, grpcMessage(5))
				trailers(f, 3)
				_ = f.WriteData(1, false, half[3:])
			},
			[]string{"DATA 1 12 bytes", unavailable(1), unavailable(3), "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
		{"one that ends by itself",
			two,
			func(f *http2.Framer) {
				trailers(f, 3)
				_ = f.WriteData(1, false, half[3:])
			},
			[]string{"HEADERS 3 end=true ", "DATA 1 12 bytes", unavailable(1), "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14"}},
		{"a stream that the app resets",
			func(f *http2.Framer) { begin(f, 1); _ = f.WriteData(1, false, half[:3]) },
			func(f *http2.Framer) { _ = f.WriteRSTStream(1, http2.ErrCodeInternal) },
			[]string{"RST 1 INTERNAL_ERROR", "HEADERS 3 end=true :status=200 grpc-status=14 grpc-message=the server is shutting down", "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14"}},
		{"no end in time",
			func(f *http2.Framer) { begin(f, 1); _ = f.WriteData(1, false, half[:3]) },
			func(*http2.Framer) {},
			[]string{unavailable(1), "HEADERS 3 end=true :status=200 grpc-status=14 grpc-message=the server is shutting down", "GOAWAY 3 NO_ERROR"},
			[]string{"grpc-status 14", "grpc-status 14"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			called := make(chan struct{})
			app := startApp(t, func(c net.Conn) {
				f := serveFrames(c)
				nextRequest(f)
				nextRequest(f)
				tt.before(f)
				<-called
				tt.after(f)
				_, _ = io.Copy(io.Discard, c)
			})
			p := startPipe(t, app, HTTP)
			r := dialRaw(t, p)
			r.request(1, true, ":path", "/a", "content-type", "application/grpc")
			r.request(3, true, ":path", "/b", "content-type", "application/grpc")
			r.until(func(f http2.Frame) bool { // the frames before it have arrived
				if h, ok := f.(*http2.HeadersFrame); ok {
					_, _ = r.dec.DecodeFull(h.HeaderBlockFragment())
				}
				d, ok := f.(*http2.DataFrame)
				return ok && (d.StreamID == 3 || !strings.Contains(tt.name, "wait") && !strings.Contains(tt.name, "itself"))
			})
			report := lastCall(t, p, time.Second)
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
	p := startPipe(t, app, HTTP)
	r := dialRaw(t, p)
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
