package pipe

import (
	"bytes"
	"context"
	"errors"
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

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// Each flood ends with GOAWAY and ENHANCE_YOUR_CALM, is counted, and leaves nothing
// behind.
func TestH2Floods(t *testing.T) {
	// An app that answers nothing: what is too much is for us to see.
	app := startApp(t, func(c net.Conn) {
		_ = http2.NewFramer(c, nil).WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 10})
		_, _ = io.Copy(io.Discard, c)
	})
	continued := func(first, rest []byte) func(*raw, int) error {
		return func(r *raw, i int) error {
			if i == 0 {
				return r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first})
			}
			return r.WriteContinuation(1, false, rest)
		}
	}
	request := func(r *raw, i int, end bool) error {
		return r.WriteHeaders(headers(uint32(2*i+1), end, []byte{0x82, 0x84, 0x86}))
	}
	atOnce := func(r *raw, i int) error { return request(r, i, false) }
	for _, tt := range []struct {
		name    string
		counter string
		limits  wirehttp2.Limits
		send    func(r *raw, i int) error // until it fails, or 100,000 times
	}{
		{"PING", "outbound_control_flood", wirehttp2.Limits{}, func(r *raw, _ int) error { return r.WritePing(false, [8]byte{}) }},
		{"SETTINGS", "outbound_control_flood", wirehttp2.Limits{}, func(r *raw, _ int) error { return r.WriteSettings() }},
		{"RST_STREAM of nothing", "outbound_control_flood", wirehttp2.Limits{}, func(r *raw, _ int) error { return r.WriteRSTStream(1, http2.ErrCodeCancel) }},
		{"rapid reset", "rx_premature_resets_flood", wirehttp2.Limits{}, func(r *raw, i int) error {
			return errors.Join(request(r, i, true), r.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
		}},
		{"empty DATA", "inbound_empty_frames_flood", wirehttp2.Limits{}, func(r *raw, i int) error {
			if i == 0 {
				return atOnce(r, 0)
			}
			return r.WriteData(1, false, nil)
		}},
		{"empty HEADERS", "inbound_empty_frames_flood", wirehttp2.Limits{}, func(r *raw, i int) error {
			return r.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), EndHeaders: true})
		}},
		{"empty CONTINUATION", "inbound_empty_frames_flood", wirehttp2.Limits{MaxContinuations: -1}, continued([]byte{0x82}, nil)},
		{"CONTINUATION", "inbound_continuation_frames_flood", wirehttp2.Limits{}, continued([]byte{0x82}, []byte{0x84})},
		{"header block", "header_overflow", wirehttp2.Limits{}, continued(make([]byte, 16000), make([]byte, 16000))},
		{"header list", "header_overflow", wirehttp2.Limits{}, func(r *raw, _ int) error { // 8 MB in 2,000 bytes
			var block bytes.Buffer
			_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("v", 4000)})
			block.Write(bytes.Repeat([]byte{0xbe}, 2000))
			return r.WriteHeaders(headers(1, false, block.Bytes()))
		}},
		{"WINDOW_UPDATE", "inbound_window_update_frames_flood", wirehttp2.Limits{}, func(r *raw, _ int) error { return r.WriteWindowUpdate(0, 1) }},
		{"PRIORITY", "inbound_priority_frames_flood", wirehttp2.Limits{}, func(r *raw, i int) error {
			return r.WritePriority(uint32(2*i+1), http2.PriorityParam{Weight: 1})
		}},
		{"streams at once, of the app's 10", "inbound_streams_flood", wirehttp2.Limits{}, atOnce},
		{"streams at once, of our limit", "inbound_streams_flood", wirehttp2.Limits{MaxStreams: 5}, atOnce},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, r := startRaw(t, app, Auto, func(c *Config) { c.H2 = tt.limits })
			if _, err := r.ReadFrame(); err != nil { // the app's SETTINGS
				t.Fatal(err)
			}
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				for i := range 100_000 {
					if tt.send(r, i) != nil {
						return
					}
				}
			}()
			r.wantAmong("ENHANCE_YOUR_CALM")
			_ = r.Close()
			<-sent
			awaitActivity(t, p, 0, 0)
			got := counters.HTTP2ByName(p.Stats().H2)
			if got[tt.counter] != 1 || floodsOf(p.Stats().H2) != 1 {
				t.Errorf("counted %v; want %s once", got, tt.counter)
			}
		})
	}
}

// A client that floods and takes nothing cannot hold anything: neither us nor the
// goroutine that is stuck in writing to it.
func TestH2FloodOfAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	full := make(chan struct{})
	app := startApp(t, func(c net.Conn) {
		f := http2.NewFramer(c, c)
		_ = f.WriteSettings()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		for f.WriteData(1, false, make([]byte, 16<<10)) == nil {
		}
		close(full)
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.Copy(io.Discard, c)
	})
	p, r := startRaw(t, app, Auto)
	<-full
	for range 3000 {
		if r.WritePing(false, [8]byte{}) != nil {
			break
		}
	}
	awaitNone(t, p)
}

// A header block that has begun must come to its end in time, as a head of HTTP/1
// must; a request's body may take as long as it takes.
func TestH2SlowHeaders(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	const limit = 50 * time.Millisecond
	for _, tt := range []struct {
		name string
		send func(r *raw)
	}{
		{"half a HEADERS frame", func(r *raw) { r.send("\x00\x00\x10\x01\x05\x00\x00\x00\x01\x82") }},
		{"no CONTINUATION", func(r *raw) {
			_ = r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, r := startRaw(t, app, Auto, func(c *Config) { c.HeadTimeout = limit })
			tt.send(r)
			r.wantAmong("ENHANCE_YOUR_CALM")
			if got := counters.HTTP2ByName(p.Stats().H2); got["inbound_header_timeout"] != 1 {
				t.Errorf("counted %v", got)
			}
		})
	}
	p, r := startRaw(t, app, Auto, func(c *Config) { c.HeadTimeout = limit })
	r.request(1, false, ":path", "/")
	r.send("\x00\x00\x05\x00\x01\x00\x00\x00\x01he")
	awaitActivity(t, p, 1, 1)
	<-time.After(3 * limit) // nothing is to happen
	r.send("llo")
	r.untilData("5")
}

// What ordinary clients do stays below every limit.
func TestH2FloodsAreNotWork(t *testing.T) {
	app := startHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(make([]byte, 100_000))
	})
	p := startPipe(t, app, HTTP)
	c := h2Client(t)
	for i := range 300 { // a third of the requests is cancelled
		if i%3 == 0 {
			req, _ := http.NewRequestWithContext(timeout(t, time.Millisecond), "GET", "http://"+p.Addr(0).String()+"/slow", nil)
			if resp, err := c.Do(req); err == nil {
				resp.Body.Close()
				t.Fatal("an answer that cannot be")
			}
			continue
		}
		resp, err := c.Get("http://" + p.Addr(0).String())
		must.Do(t, err)
		if n, err := io.Copy(io.Discard, resp.Body); n != 100_000 || err != nil {
			t.Fatal(n, err)
		}
		resp.Body.Close()
	}
	if s := p.Stats().H2; floodsOf(s) != 0 || s.BadPeers != 0 {
		t.Errorf("%+v", s)
	}
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// floodsOf counts the connections that were ended because their client sent too much of something.
func floodsOf(s counters.HTTP2Stats) (sum uint64) {
	for _, n := range s.Floods {
		sum += n
	}
	return sum
}

// The streams of all connections share a part of the memory. Beyond it a connection that has many of them is ended, and
// others may open theirs.
func TestStreamsShareMemory(t *testing.T) {
	app := startApp(t, func(c net.Conn) { // one that allows any number and answers none
		_ = http2.NewFramer(c, nil).WriteSettings()
		_, _ = io.Copy(io.Discard, c)
	})
	p := startPipe(t, app, Auto, func(cfg *Config) { cfg.Memory = 32 << 20 })
	open := func(r *raw, n int) {
		for i := range n {
			block := []byte{0x82, 0x86, 0x84} // GET, http, /
			if r.WriteHeaders(headers(uint32(2*i+1), true, block)) != nil {
				return // it has been ended
			}
		}
	}
	fit := int(p.budget.Limit() / 2 / streamMemory)
	var many []*raw
	for range 40 {
		r := dialRaw(t, p)
		open(r, fit/20)
		many = append(many, r)
	}
	polltest.Eventually(t, "connections are ended", func() bool { return floodsOf(p.Stats().H2) > 0 })
	if held := p.streamsHeld.Load(); held > p.budget.Limit()/2 {
		t.Errorf("streams hold %d bytes, of at most %d", held, p.budget.Limit()/2)
	}
	few := dialRaw(t, p)
	open(few, 1)
	polltest.Eventually(t, "another connection's request is forwarded", func() bool {
		return slices.ContainsFunc(p.all(), func(c *conn) bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.client.RemoteAddr().String() == few.LocalAddr().String() && !c.end.done() && c.h2 != nil && len(c.h2.streams) == 1
		})
	})
	for _, r := range many {
		_ = r.Close()
	}
	_ = few.Close()
	polltest.Eventually(t, "the memory is free again", func() bool { return p.streamsHeld.Load() == 0 })
}
