package pipe

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	wirehttp2 "github.com/lastcall-dev/lastcall/internal/wire/http2"
	"github.com/lastcall-dev/lastcall/internal/wire/http2/http2test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

// half is one side's frames, and how they are written.
type half struct {
	*coder
	out    bytes.Buffer
	framer *http2.Framer
}

func newHalf() *half {
	h := &half{coder: newCoder()}
	h.framer = http2.NewFramer(&h.out, nil)
	h.framer.AllowIllegalWrites = true
	return h
}

// headers writes HEADERS, cut into CONTINUATION frames as t draws it.
func (h *half) headers(t *rapid.T, id uint32, end bool, fields ...string) {
	block := h.code(fields...)
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

// following is a connection of HTTP/2 without sockets, of a pipe of its own.
func following() *conn {
	p := &Pipe{changes: make(chan struct{}, 1)}
	var end context.CancelFunc
	p.ctx, end = context.WithCancel(context.Background())
	end() // it has no stacks to look after
	p.cfg.setDefaults()
	return p.follows()
}

// follows is such a connection of p, which has no other.
func (p *Pipe) follows() *conn {
	p.busy.Store(0)
	p.budget = budget.New(1 << 20)
	c := &conn{p: p, in: &listener{p: p}, mode: modeH2}
	c.h2 = c.newH2()
	c.recountLocked()
	return c
}

// feed hands over what a side has written, in pieces as t draws them.
func (c *conn) feed(t *rapid.T, h *half, f *wirehttp2.Follower, v wirehttp2.Events) {
	p := bytes.Clone(h.out.Bytes())
	h.out.Reset()
	var held []byte
	for len(p) > 0 {
		n := rapid.IntRange(1, len(p)).Draw(t, "bytes")
		held = append(held, p[:n]...)
		p = p[n:]
		m, err := f.Follow(held, v)
		must.Do(t, err)
		held = held[m:]
		c.h2.batchEndsLocked()
	}
	if len(held) > 0 || !f.AtBoundary() {
		t.Fatalf("%d bytes are held back; boundary %v", len(held), f.AtBoundary())
	}
}

// Whatever both sides send, the open streams are those that RFC 9113, 5.1
// calls open, and busy follows from them.
func TestH2CountsExactly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := following()
		client, app := newHalf(), newHalf()
		type sides struct{ client, app bool } // which have ended
		open := map[uint32]*sides{}
		var next, pushed uint32 = 1, 2
		limit := uint32(wirehttp2.MaxStreamID) // of the app's GOAWAY
		pick := func() (uint32, *sides) {
			ids := slices.Sorted(maps.Keys(open))
			if len(ids) == 0 {
				t.Skip("no stream")
			}
			id := rapid.SampledFrom(ids).Draw(t, "stream")
			return id, open[id]
		}
		clientsEnd := func(s *sides) *bool { return &s.client }
		appsEnd := func(s *sides) *bool { return &s.app }
		// writes has a side write on an open stream that it has not ended; write reports whether it has now.
		writes := func(end func(*sides) *bool, write func(t *rapid.T, id uint32) bool) func(*rapid.T) {
			return func(t *rapid.T) {
				id, s := pick()
				if *end(s) {
					t.Skip("has ended")
				}
				if *end(s) = write(t, id); s.client && s.app {
					delete(open, id)
				}
			}
		}
		data := func(from *half) func(*rapid.T, uint32) bool {
			return func(t *rapid.T, id uint32) bool {
				end := rapid.Bool().Draw(t, "end")
				_ = from.framer.WriteData(id, end, make([]byte, rapid.SampledFrom([]int{0, 5, 16384, 40000}).Draw(t, "length")))
				return end
			}
		}
		reset := func(from *half, code http2.ErrCode) func(*rapid.T) {
			return func(*rapid.T) {
				id, _ := pick()
				_ = from.framer.WriteRSTStream(id, code)
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
			"client's data":  writes(clientsEnd, data(client)),
			"app's data":     writes(appsEnd, data(app)),
			"client's reset": reset(client, http2.ErrCodeCancel),
			"app's reset":    reset(app, http2.ErrCodeRefusedStream),
			"client's trailers": writes(clientsEnd, func(t *rapid.T, id uint32) bool {
				client.headers(t, id, true, "trailer", "value")
				return true
			}),
			"interim response": writes(appsEnd, func(t *rapid.T, id uint32) bool {
				app.headers(t, id, false, ":status", "103")
				return false
			}),
			"response": writes(appsEnd, func(t *rapid.T, id uint32) bool {
				end := rapid.Bool().Draw(t, "end")
				app.headers(t, id, end, ":status", "200", "x", "y")
				return end
			}),
			"push": func(t *rapid.T) {
				id, s := pick()
				if s.app || id%2 == 0 {
					t.Skip("cannot")
				}
				_ = app.framer.WritePushPromise(http2.PushPromiseParam{StreamID: id, PromiseID: pushed, BlockFragment: app.code(":path", "/pushed"), EndHeaders: true})
				open[pushed] = &sides{client: true}
				pushed += 2
			},
			"app's GOAWAY": func(t *rapid.T) {
				last := rapid.SampledFrom([]uint32{wirehttp2.MaxStreamID, next, next - min(next, 4)}).Draw(t, "last")
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
				want := slices.Sorted(maps.Keys(open))
				if !slices.Equal(ids, want) || c.h2.counted != len(want) || c.busy != (len(want) > 0) || c.p.busy.Load() != int64(min(1, len(want))) {
					t.Fatalf("open are %v, counted %d, busy %v; want %v", ids, c.h2.counted, c.busy, want)
				}
			},
		})
	})
}

// A request and its response cost no allocation, once the connection has seen some:
// none at all, but the race detector has pools lose some of what they hold.
func TestH2RequestAllocatesNothing(t *testing.T) {
	c, request, response := aRequest(t)
	if n := testing.AllocsPerRun(100, func() { carry(t, c, request, response) }); n >= 32 {
		t.Errorf("%v allocations for 32 requests", n)
	}
}

// aRequest is a connection, and 32 requests with their responses as h2load and
// nginx send them.
func aRequest(t testing.TB) (c *conn, request, response []byte) {
	client, app := newHalf(), newHalf()
	write := func(h *half, id uint32, end bool, fields ...string) {
		_ = h.framer.WriteHeaders(headers(id, end, h.code(fields...)))
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
	if n, err := c.h2.up.Follow(request, upVisitor{c}); n != len(request) || err != nil {
		t.Fatal(n, err)
	}
	c.h2.batchEndsLocked()
	if n, err := c.h2.down.Follow(response, downVisitor{c}); n != len(response) || err != nil {
		t.Fatal(n, err)
	}
	c.h2.batchEndsLocked()
	if c.busy {
		t.Fatal("still busy")
	}
}

// FuzzH2Streams lets both sides say anything: what is counted stays true.
func FuzzH2Streams(f *testing.F) {
	for _, seed := range http2test.Seeds() {
		f.Add(seed, seed, uint8(3))
	}
	p := following().p // to make one for each input would take most of the time
	f.Fuzz(func(t *testing.T, client, app []byte, turn uint8) {
		for i, in := range stormtest.Mutations(t, client, http2test.Words) {
			streamsCounted(t, p, in, app, turn+uint8(i))
		}
		for i, in := range stormtest.Mutations(t, app, http2test.Words) {
			streamsCounted(t, p, client, in, turn+uint8(i))
		}
	})
}

func streamsCounted(t *testing.T, p *Pipe, client, app []byte, turn uint8) {
	c := p.follows()
	sides := []struct {
		p    []byte
		held int
		end  int
		f    *wirehttp2.Follower
		v    wirehttp2.Events
	}{{p: client, f: &c.h2.up, v: upVisitor{c}}, {p: app, f: &c.h2.down, v: downVisitor{c}}}
	for sides[0].end < len(client) || sides[1].end < len(app) {
		for i := range sides {
			s := &sides[i]
			s.end = min(len(s.p), s.end+int(turn)+1)
			n, err := s.f.Follow(s.p[s.held:s.end], s.v)
			if s.held += n; err != nil {
				s.end, s.p = 0, nil
				return
			}
			c.h2.batchEndsLocked()
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
