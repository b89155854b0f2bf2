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

	"github.com/lastcall-dev/lastcall/internal/must"
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
	p, r := startRaw(t, app, HTTP)
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
	p, r := startRaw(t, app, HTTP)
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
	_, r := startRaw(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP)
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
	p, r := startRaw(t, app, HTTP)
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

// hyper and curl are the SETTINGS by which these clients are recognized.
var (
	hyper = []http2.Setting{{ID: 1, Val: 4096}, {ID: 4, Val: 65535}, {ID: 5, Val: 16384}}
	curl  = []http2.Setting{{ID: 3, Val: 100}, {ID: 2, Val: 0}}
	other = []http2.Setting{{ID: 4, Val: 1 << 22}}
)

// A client that fails open requests at a GOAWAY gets only the last one, between its requests; one that is not recognized gets
// both between its requests; others get the first one at once.
func TestH2GoAwayByClient(t *testing.T) {
	for _, tt := range []struct {
		name     string
		settings []http2.Setting
		fields   []string
		first    string // while the request is open, after it, or never
	}{
		{"unknown", other, []string{"user-agent", "curl/8.5.0"}, "after"},
		{"unknown, through a proxy", other, []string{"x-forwarded-for", "192.0.2.1"}, "open"},
		{"gRPC", other, []string{"content-type", "application/grpc"}, "open"},
		{"hyper-h2", hyper, nil, "never"},
		{"gRPC by hyper-h2", hyper, []string{"content-type", "application/grpc"}, "never"},
		{"Node, without settings", nil, nil, "open"},
		{"curl", curl, []string{"user-agent", "python-httpx/0.28.1"}, "open"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startGate(t)
			p := startPipe(t, g, HTTP)
			r := dialRaw(t, p, tt.settings...)
			must.Do(t, r.WriteSettings(other...)) // as grpclib does: the first ones count
			r.request(1, true, append([]string{":path", "/a"}, tt.fields...)...)
			<-g.requests
			awaitActivity(t, p, 1, 1)
			_ = p.Drain(ctx)
			if tt.first == "open" {
				polltest.Eventually(t, "a GOAWAY while the request is open", func() bool { return p.Stats().H2.GoAways > 0 })
			}
			g.open()
			got := strings.Join(r.frames(), "\n")
			first, answer, last := strings.Index(got, "GOAWAY 2147483647"), strings.Index(got, `DATA 1 "done"`), strings.Index(got, "GOAWAY 1 NO_ERROR")
			when := "after"
			switch {
			case first < 0:
				when = "never"
			case first < answer:
				when = "open"
			}
			if when != tt.first || answer < 0 || last < max(first, answer) {
				t.Errorf("got\n%s", got)
			}
		})
	}
}

// A client that connects during the drain is served before its GOAWAY.
func TestH2GoodbyeComesWithTheFirstRequest(t *testing.T) {
	t.Parallel()
	p := startPipe(t, startHTTP(t, func(http.ResponseWriter, *http.Request) {}), HTTP)
	_ = p.Drain(ctx)
	r := dialRaw(t, p)
	awaitActivity(t, p, 1, 0)
	if p.Stats().H2.GoAways > 0 {
		t.Error("a GOAWAY before the first request")
	}
	r.request(1, true, ":path", "/", "user-agent", "curl/8.5.0")
	got := strings.Join(r.frames(), "\n")
	if !strings.Contains(got, "HEADERS 1 end=true :status=200") || !strings.Contains(got, "GOAWAY 2147483647") || !strings.HasSuffix(got, "GOAWAY 1 NO_ERROR") {
		t.Errorf("got\n%s", got)
	}
}
