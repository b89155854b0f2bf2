package pipe

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// A GOAWAY never names a higher stream than the app's (RFC 9113, 6.8), and streams
// that the app has refused by its GOAWAY hold nothing up.
func TestH2AppSaysGoodbye(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		f := serveFrames(c)
		for id := nextRequest(f); id > 0; id = nextRequest(f) {
			if id == 3 {
				_ = f.WriteGoAway(1, http2.ErrCodeNo, nil) // 3 is refused by that
			}
		}
	})
	p := startPipe(t, app, HTTP)
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/kept")
	r.request(3, true, ":path", "/refused")
	polltest.Eventually(t, "the kept request alone is open", func() bool {
		open, _ := p.Open(ctx, 10)
		return len(open) == 1 && open[0].Request == "POST /kept" && p.Stats().Requests == 2
	})
	_ = p.Drain(ctx)
	if _, err := p.LastCall(ctx, 0); err != nil {
		t.Fatal(err)
	}
	r.want("GOAWAY 1 NO_ERROR", "HEADERS 1 end=true :status=503", "GOAWAY 1 NO_ERROR")
}

// GOAWAY comes in between frames, never within HEADERS and CONTINUATION, whenever
// the drain begins.
func TestH2GoodbyeAtABoundary(t *testing.T) {
	t.Parallel()
	for at := range 9 + 9 + 1 + 9 + 3 + 9 + 1 + 9 + 5 {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel() // each waits for a second between the two GOAWAYs
			drainH2After(t, at)
		})
	}
}

// drainH2After begins a drain when the app has sent so many bytes of its frames.
func drainH2After(t *testing.T, at int) {
	step, stepped := make(chan int), make(chan struct{})
	app := startApp(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(wirehttp2.Preface)))
		var all bytes.Buffer
		f := http2.NewFramer(&all, nil)
		_ = f.WriteSettings()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}})
		_ = f.WriteContinuation(1, false, []byte{0x0f, 0x0d, 0x01})
		_ = f.WriteContinuation(1, true, []byte{'5'})
		_ = f.WriteData(1, true, []byte("hello"))
		for range 2 {
			_, _ = c.Write(all.Next(<-step))
			stepped <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, c)
	})
	p := startPipe(t, app, HTTP)
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/")
	awaitRequests(t, p, 1)
	step <- at
	<-stepped
	_ = p.Drain(ctx)
	step <- 100
	<-stepped
	r.wantAmong("GOAWAY 2147483647 NO_ERROR", `DATA 1 "hello" end=true`, "GOAWAY 1 NO_ERROR")
}

// Frames of a tunnel's own are bytes: GOAWAY and PING within CONNECT (Envoy's
// HBONE, #34897) and RFC 8441's extended CONNECT pass as they came.
func TestH2Tunnels(t *testing.T) {
	var inner bytes.Buffer
	f := http2.NewFramer(&inner, nil)
	_ = f.WritePing(false, [8]byte{1})
	_ = f.WriteGoAway(wirehttp2.MaxStreamID, http2.ErrCodeNo, []byte("inner"))
	app := startApp(t, func(c net.Conn) {
		f := readPreface(c)
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.HeadersFrame:
				respond(f, frame.StreamID, false, ":status", "200")
			case *http2.DataFrame:
				_ = f.WriteData(frame.StreamID, frame.StreamEnded(), frame.Data())
			}
		}
	})
	p := startPipe(t, app, HTTP)
	for _, tt := range []struct {
		line   string
		fields []string
	}{
		{"CONNECT ", []string{":method", "CONNECT", ":authority", "far:15008"}},
		{"CONNECT /chat", []string{":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/chat", ":authority", "app"}},
	} {
		r := dialRaw(t, p)
		r.headers(1, false, tt.fields...)
		_ = r.WriteData(1, false, inner.Bytes())
		r.until(func(frame http2.Frame) bool {
			d, ok := frame.(*http2.DataFrame)
			if ok && !bytes.Equal(d.Data(), inner.Bytes()) {
				t.Errorf("%s: echoed %q", tt.line, d.Data())
			}
			return ok
		})
		if open, _ := p.Open(ctx, 10); len(open) != 1 || open[0].Request != tt.line {
			t.Errorf("open: %v; want %q", open, tt.line)
		}
		_ = r.WriteData(1, true, nil)
		awaitActivity(t, p, 1, 0)
		_ = r.Close()
		awaitActivity(t, p, 0, 0)
	}
}

// PING and SETTINGS pass untouched, in both directions.
func TestH2PingAndSettingsPass(t *testing.T) {
	app := startH2(t, func(http.ResponseWriter, *http.Request) {})
	p := startPipe(t, app, HTTP)
	r := dialRaw(t, p)
	_ = r.WritePing(false, [8]byte{1, 2, 3})
	var settings, acked, ping bool
	r.until(func(frame http2.Frame) bool {
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok && n > 0 {
				settings = true
			}
			acked = acked || f.IsAck()
		case *http2.PingFrame:
			ping = f.IsAck() && f.Data == [8]byte{1, 2, 3}
		}
		return settings && acked && ping
	})
}

// A request after the final GOAWAY does not reach the app: that GOAWAY lets its client
// retry it elsewhere.
func TestH2NothingAfterTheLastGoodbye(t *testing.T) {
	seen := make(chan uint32, 10)
	app := startApp(t, func(c net.Conn) {
		f := serveFrames(c)
		for id := nextRequest(f); id > 0; id = nextRequest(f) {
			seen <- id
			respond(f, id, true, ":status", "200")
		}
	})
	p := startPipe(t, app, HTTP)
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/")
	<-seen
	awaitActivity(t, p, 1, 0)
	c := p.all()[0]
	c.mu.Lock() // up meets the end in the middle of its work
	r.request(3, true, ":path", "/late")
	c.end.advance(ended)
	c.recountLocked()
	c.mu.Unlock()
	c.h2.sendFinalGoAway()
	c.sendEnd()
	got := strings.Join(r.frames(), "\n")
	if !strings.HasSuffix(got, "GOAWAY 1 NO_ERROR") {
		t.Errorf("got %s", got)
	}
	polltest.Eventually(t, "the race is counted", func() bool { return p.Stats().Raced > 0 })
	select {
	case id := <-seen:
		t.Errorf("the app has got stream %d", id)
	default:
	}
	if p.Stats().Requests != 1 {
		t.Errorf("%+v", p.Stats())
	}
}
