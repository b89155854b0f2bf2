package pipe

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"
)

// half is one side's frames, and how they are written.
type half struct {
	out    bytes.Buffer
	framer *http2.Framer
	block  bytes.Buffer
	enc    *hpack.Encoder
}

func newHalf() *half {
	h := new(half)
	h.framer = http2.NewFramer(&h.out, nil)
	h.framer.AllowIllegalWrites = true
	h.enc = hpack.NewEncoder(&h.block)
	return h
}

// headers writes HEADERS, cut into CONTINUATION frames as t draws it.
func (h *half) headers(t *rapid.T, id uint32, end bool, fields ...string) {
	h.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		_ = h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	block := h.block.Bytes()
	pieces := rapid.IntRange(0, min(3, len(block)-1)).Draw(t, "continuations")
	first := len(block)
	if pieces > 0 {
		first = rapid.IntRange(1, len(block)-pieces).Draw(t, "first")
	}
	_ = h.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: block[:first], EndHeaders: pieces == 0, EndStream: end,
		PadLength: rapid.SampledFrom([]uint8{0, 0, 7}).Draw(t, "padding"),
	})
	for rest := block[first:]; pieces > 0; pieces-- {
		n := len(rest)
		if pieces > 1 {
			n = rapid.IntRange(0, len(rest)-pieces+1).Draw(t, "piece")
		}
		_ = h.framer.WriteContinuation(id, pieces == 1, rest[:n])
		rest = rest[n:]
	}
}

// following is a connection of HTTP/2 without sockets.
func following() *conn {
	p := &Pipe{changes: make(chan struct{}, 1)}
	p.cfg.setDefaults()
	c := &conn{p: p, in: &listener{p: p}, mode: modeH2}
	c.h2 = c.newH2()
	c.recount()
	return c
}

// feed hands over what a side has written, in pieces as t draws them.
func (c *conn) feed(t *rapid.T, h *half, f *follower, v visitor) {
	p := bytes.Clone(h.out.Bytes())
	h.out.Reset()
	var held []byte
	for len(p) > 0 {
		n := rapid.IntRange(1, len(p)).Draw(t, "bytes")
		held = append(held, p[:n]...)
		p = p[n:]
		m, err := f.follow(held, v)
		if err != nil {
			t.Fatal(err)
		}
		held = held[m:]
		c.batchEnds()
	}
	if len(held) > 0 || !f.boundary() {
		t.Fatalf("%d bytes are held back; boundary %v", len(held), f.boundary())
	}
}

// Whatever both sides say, the open streams are those of which RFC 9113, 5.1 says
// so, and busy follows from them.
func TestH2CountsExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := following()
		client, app := newHalf(), newHalf()
		type sides struct{ client, app bool } // which have ended
		open := map[uint32]*sides{}
		var next, pushed uint32 = 1, 2
		limit := uint32(maxStreamID) // of the app's GOAWAY
		pick := func() (uint32, *sides) {
			ids := make([]uint32, 0, len(open))
			for id := range open {
				ids = append(ids, id)
			}
			if len(ids) == 0 {
				t.Skip("no stream")
			}
			slices.Sort(ids)
			id := rapid.SampledFrom(ids).Draw(t, "stream")
			return id, open[id]
		}
		settle := func(id uint32) {
			if s := open[id]; s != nil && s.client && s.app {
				delete(open, id)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"request": func(t *rapid.T) {
				end := rapid.Bool().Draw(t, "end")
				client.headers(t, next, end, ":method", "GET", ":path", fmt.Sprintf("/%d", next), "x", "y")
				if next <= limit {
					open[next] = &sides{client: end}
				}
				next += 2
			},
			"client's data": func(t *rapid.T) {
				id, s := pick()
				if s.client {
					t.Skip("has ended")
				}
				s.client = rapid.Bool().Draw(t, "end")
				_ = client.framer.WriteData(id, s.client, make([]byte, rapid.SampledFrom([]int{0, 5, 16384, 40000}).Draw(t, "length")))
				settle(id)
			},
			"client's trailers": func(t *rapid.T) {
				id, s := pick()
				if s.client {
					t.Skip("has ended")
				}
				s.client = true
				client.headers(t, id, true, "trailer", "value")
				settle(id)
			},
			"client's reset": func(t *rapid.T) {
				id, _ := pick()
				_ = client.framer.WriteRSTStream(id, http2.ErrCodeCancel)
				delete(open, id)
			},
			"interim response": func(t *rapid.T) {
				id, s := pick()
				if s.app {
					t.Skip("has ended")
				}
				app.headers(t, id, false, ":status", "103")
			},
			"response": func(t *rapid.T) {
				id, s := pick()
				if s.app {
					t.Skip("has ended")
				}
				s.app = rapid.Bool().Draw(t, "end")
				app.headers(t, id, s.app, ":status", "200", "x", "y")
				settle(id)
			},
			"app's data": func(t *rapid.T) {
				id, s := pick()
				if s.app {
					t.Skip("has ended")
				}
				s.app = rapid.Bool().Draw(t, "end")
				_ = app.framer.WriteData(id, s.app, make([]byte, rapid.SampledFrom([]int{0, 5, 16384, 40000}).Draw(t, "length")))
				settle(id)
			},
			"app's reset": func(t *rapid.T) {
				id, _ := pick()
				_ = app.framer.WriteRSTStream(id, http2.ErrCodeRefusedStream)
				delete(open, id)
			},
			"push": func(t *rapid.T) {
				id, s := pick()
				if s.app || id%2 == 0 {
					t.Skip("cannot")
				}
				app.block.Reset()
				_ = app.enc.WriteField(hpack.HeaderField{Name: ":path", Value: "/pushed"})
				_ = app.framer.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: pushed, BlockFragment: app.block.Bytes(), EndHeaders: true})
				open[pushed] = &sides{client: true}
				pushed += 2
			},
			"app's GOAWAY": func(t *rapid.T) {
				last := rapid.SampledFrom([]uint32{maxStreamID, next, next - min(next, 4)}).Draw(t, "last")
				_ = app.framer.WriteGoAway(last, http2.ErrCodeNo, nil)
				limit = min(limit, last)
				for id := range open {
					if id%2 == 1 && id > limit {
						delete(open, id)
					}
				}
			},
			"late frames of closed streams": func(*rapid.T) {
				_ = client.framer.WriteRSTStream(next+100, http2.ErrCodeCancel)
				_ = app.framer.WriteRSTStream(next+100, http2.ErrCodeCancel)
				_ = client.framer.WriteData(next+100, true, nil)
				_ = app.framer.WriteWindowUpdate(0, 1)
				_ = client.framer.WritePing(true, [8]byte{})
			},
			"": func(t *rapid.T) {
				c.feed(t, client, &c.h2.up, upVisitor{c})
				c.feed(t, app, &c.h2.down, downVisitor{c})
				ids := []uint32{}
				for _, s := range c.h2.streams {
					ids = append(ids, s.id)
				}
				want := make([]uint32, 0, len(open))
				for id := range open {
					want = append(want, id)
				}
				slices.Sort(want)
				if !slices.Equal(ids, want) || c.h2.counted != len(want) || c.busy != (len(want) > 0) || c.p.busy.Load() != int64(min(1, len(want))) {
					t.Fatalf("open are %v, counted %d, busy %v; want %v", ids, c.h2.counted, c.busy, want)
				}
			},
		})
	})
}

// A goodbye never names a higher stream than the app's (RFC 9113, 6.8), and streams
// that the app has said it will not serve hold nothing up.
func TestH2AppSaysGoodbye(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		f := http2.NewFramer(c, c)
		_, _ = io.ReadFull(c, make([]byte, len(preface)))
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.HeadersFrame); ok && h.StreamID == 3 {
				_ = f.WriteGoAway(1, http2.ErrCodeNo, nil) // 3 is refused by that
			}
		}
	})
	p := startPipe(t, app, HTTP)
	r := dialRaw(t, p)
	r.request(1, true, ":path", "/kept")
	r.request(3, true, ":path", "/refused")
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if open, _ := p.Open(ctx, 10); len(open) == 1 && open[0].Request == "POST /kept" && p.Stats().Requests == 2 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("open: %v", open)
		}
	}
	_ = p.Drain(ctx)
	if _, err := p.LastCall(ctx, 0); err != nil {
		t.Fatal(err)
	}
	r.want("GOAWAY 1 NO_ERROR", "HEADERS 1 end=true :status=503", "GOAWAY 1 NO_ERROR")
}

// GOAWAY comes in between frames, never within HEADERS and CONTINUATION, whenever
// the drain begins.
func TestH2GoodbyeAtABoundary(t *testing.T) {
	step, stepped := make(chan int), make(chan struct{})
	app := startApp(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, len(preface)))
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
	for at := range 9 + 9 + 1 + 9 + 3 + 9 + 1 + 9 + 5 {
		p := startPipe(t, app, HTTP)
		r := dialRaw(t, p)
		r.request(1, true, ":path", "/")
		awaitRequests(t, p, 1)
		step <- at
		<-stepped
		_ = p.Drain(ctx)
		step <- 100
		<-stepped
		got := strings.Join(r.frames(), "\n")
		for _, want := range []string{"GOAWAY 2147483647 NO_ERROR", `DATA 1 "hello" end=true`, "GOAWAY 1 NO_ERROR"} {
			if !strings.Contains(got, want) {
				t.Errorf("drained after %d bytes: lacks %s:\n%s", at, want, got)
			}
		}
	}
}

// Frames of a tunnel's own are bytes: GOAWAY and PING within CONNECT (Envoy's
// HBONE, #34897) and RFC 8441's extended CONNECT pass as they came.
func TestH2Tunnels(t *testing.T) {
	var inner bytes.Buffer
	f := http2.NewFramer(&inner, nil)
	_ = f.WritePing(false, [8]byte{1})
	_ = f.WriteGoAway(maxStreamID, http2.ErrCodeNo, []byte("inner"))
	app := startApp(t, func(c net.Conn) {
		f := http2.NewFramer(c, c)
		_, _ = io.ReadFull(c, make([]byte, len(preface)))
		_ = f.WriteSettings(http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1})
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.HeadersFrame:
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true})
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
		r.block.Reset()
		for i := 0; i < len(tt.fields); i += 2 {
			_ = r.enc.WriteField(hpack.HeaderField{Name: tt.fields[i], Value: tt.fields[i+1]})
		}
		_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: r.block.Bytes(), EndHeaders: true})
		_ = r.WriteData(1, false, inner.Bytes())
		for {
			frame, err := r.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if d, ok := frame.(*http2.DataFrame); ok {
				if !bytes.Equal(d.Data(), inner.Bytes()) {
					t.Errorf("%s: echoed %q", tt.line, d.Data())
				}
				break
			}
		}
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
	for !settings || !acked || !ping {
		frame, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok && n > 0 {
				settings = true
			}
			acked = acked || f.IsAck()
		case *http2.PingFrame:
			ping = f.IsAck() && f.Data == [8]byte{1, 2, 3}
		}
	}
}

// What comes behind the last goodbye is not the app's any more: its client has been
// told that it may ask again elsewhere.
func TestH2NothingAfterTheLastGoodbye(t *testing.T) {
	seen := make(chan uint32, 10)
	app := startApp(t, func(c net.Conn) {
		f := http2.NewFramer(c, c)
		_, _ = io.ReadFull(c, make([]byte, len(preface)))
		_ = f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.HeadersFrame); ok {
				seen <- h.StreamID
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
			}
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
	c.over = true
	c.recount()
	c.mu.Unlock()
	c.endIdleH2()
	c.end()
	got := strings.Join(r.frames(), "\n")
	if !strings.HasSuffix(got, "GOAWAY 1 NO_ERROR") {
		t.Errorf("got %s", got)
	}
	for end := time.Now().Add(patience); p.Stats().Raced == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the race is not counted")
		}
	}
	select {
	case id := <-seen:
		t.Errorf("the app has got stream %d", id)
	default:
	}
	if p.Stats().Requests != 1 {
		t.Errorf("%+v", p.Stats())
	}
}

// A request and its response cost no allocation, once the connection has seen some:
// none at all, but the race detector has pools lose some of what they hold.
func TestH2RequestAllocatesNothing(t *testing.T) {
	c, request, response := aRequest(t)
	if n := testing.AllocsPerRun(100, func() { carry(t, c, request, response) }); n >= 32 {
		t.Errorf("%v allocations for 32 requests", n)
	}
}

func BenchmarkH2Request(b *testing.B) {
	c, request, response := aRequest(b)
	b.ReportAllocs()
	for b.Loop() {
		carry(b, c, request, response)
	}
}

// aRequest is a connection, and 32 requests with their responses as h2load and
// nginx send them.
func aRequest(t testing.TB) (c *conn, request, response []byte) {
	client, app := newHalf(), newHalf()
	write := func(h *half, id uint32, end bool, fields ...string) {
		h.block.Reset()
		for i := 0; i < len(fields); i += 2 {
			_ = h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
		}
		_ = h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.block.Bytes(), EndHeaders: true, EndStream: end})
	}
	c = following()
	for range 2 { // the second time with tables that are full
		client.out.Reset()
		app.out.Reset()
		for i := range uint32(32) {
			write(client, 2*i+1, true, ":path", "/get", ":scheme", "http", ":authority", "127.0.0.1:8080", ":method", "GET", "user-agent", "h2load nghttp2/1.52.0")
			write(app, 2*i+1, false, ":status", "200", "server", "nginx/1.22.1", "content-type", "application/json", "content-length", "55")
			_ = app.framer.WriteData(2*i+1, true, make([]byte, 55))
		}
		request, response = bytes.Clone(client.out.Bytes()), bytes.Clone(app.out.Bytes())
		carry(t, c, request, response)
	}
	return c, request, response
}

func carry(t testing.TB, c *conn, request, response []byte) {
	c.h2.last = 0 // the same streams once more
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, err := c.h2.up.follow(request, upVisitor{c}); n != len(request) || err != nil {
		t.Fatal(n, err)
	}
	c.batchEnds()
	if n, err := c.h2.down.follow(response, downVisitor{c}); n != len(response) || err != nil {
		t.Fatal(n, err)
	}
	c.batchEnds()
	if c.busy {
		t.Fatal("still busy")
	}
}
