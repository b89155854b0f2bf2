package planetest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/lastcall-dev/lastcall/drain"
)

// clients are the kinds of clients that may connect at any time of a drain, by name. None of them is a reason to wait
// for longer than its request takes, or than a request head may take to arrive.
var clients = map[string]func(c client){
	"silent":            func(client) {},
	"empty line":        func(c client) { c.send("\r\n") },
	"half a head":       func(c client) { c.send("GET / HTTP/1.1\r\nHo") },
	"HTTP/1.1 requests": func(c client) { c.send(request, request) },
	"half a preface":    func(c client) { c.send(http2.ClientPreface[:9]) },
	"preface only":      func(c client) { c.send(http2.ClientPreface) },
	"preface, SETTINGS": func(c client) { c.start() },
	"half a frame":      func(c client) { c.start(); c.send("\x00\x00\x10\x01") },
	"half a field block": func(c client) {
		_ = c.start().WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	},
	"PING only": func(c client) {
		f := c.start()
		c.ping(f)
	},
	"WINDOW_UPDATE only": func(c client) {
		f := c.start()
		for range 10 {
			c.pause()
			_ = f.WriteWindowUpdate(0, 1)
		}
	},
	"HTTP/2 requests": func(c client) {
		f := c.start()
		for i := range uint32(3) {
			get(f, 2*i+1)
			c.pause()
		}
	},
	"HTTP/2 request, PING": func(c client) {
		f := c.start()
		get(f, 1)
		c.ping(f)
	},
	"HTTP/2 requests, cancelled": func(c client) {
		f := c.start()
		for i := range uint32(3) {
			get(f, 2*i+1)
			c.pause()
			_ = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
	},
	"HTTP/2 request, GOAWAY": func(c client) {
		f := c.start()
		get(f, 1)
		c.pause()
		_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
	},
}

const request = "GET / HTTP/1.1\r\nHost: app\r\n\r\n"

type client struct{ net.Conn }

func (c client) pause() { time.Sleep(rand.N(10 * time.Millisecond)) }

func (c client) send(parts ...string) {
	for _, part := range parts {
		_, _ = io.WriteString(c, part)
		c.pause()
	}
}

// start sends the beginning of an HTTP/2 connection.
func (c client) start() *http2.Framer {
	c.send(http2.ClientPreface)
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	c.pause()
	return f
}

func (c client) ping(f *http2.Framer) {
	for range 10 {
		c.pause()
		_ = f.WritePing(false, [8]byte{})
	}
}

func get(f *http2.Framer, id uint32) {
	block := append([]byte{0x82, 0x86, 0x84, 0x01, 3}, "app"...) // GET, http, /, :authority
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
}

// Clients has clients of every kind connect to a data plane that serves HTTP/1.1 and HTTP/2 without TLS while it is
// drained and closed in the steps of drain.Termination, and fails the test if one of them keeps it from closing. start
// is called in each round: it makes the data plane, and returns it with a function that connects to it. The app has to
// answer within 20 ms, and the data plane has to end a connection whose request head takes longer than 300 ms.
func Clients(t *testing.T, start func(t *testing.T, round int) (plane drain.DataPlane, dial func() (net.Conn, error))) {
	const rounds, each, patience = 6, 4, 20 * time.Second
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel() // a round only waits
			p, dial := start(t, round)
			var all sync.WaitGroup
			var mu sync.Mutex
			open := map[string]int{} // by name
			count := func(name string, n int) {
				mu.Lock()
				defer mu.Unlock()
				if open[name] += n; open[name] == 0 {
					delete(open, name)
				}
			}
			for name, run := range clients {
				for range each {
					all.Go(func() {
						time.Sleep(rand.N(80 * time.Millisecond))
						c, err := dial()
						if err != nil {
							return // the listener is closed already
						}
						count(name, 1)
						defer c.Close()
						var sending sync.WaitGroup
						sending.Go(func() {
							time.Sleep(rand.N(40 * time.Millisecond)) // the end may come before its first byte
							run(client{c})
						})
						_ = c.SetReadDeadline(time.Now().Add(2 * patience))
						_, _ = io.Copy(io.Discard, c)
						count(name, -1)
						sending.Wait()
					})
				}
			}
			defer all.Wait()
			defer p.Kill()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for _, step := range []func() error{
				func() error { return p.Drain(ctx) },
				func() error { return p.CloseIdle(ctx, 10*time.Millisecond) },
				func() error { return p.StopAccepting(ctx) },
				func() error { return p.CloseIdle(ctx, 0) },
			} {
				time.Sleep(rand.N(30 * time.Millisecond))
				if err := step(); err != nil {
					t.Error(err)
				}
			}
			if err := p.Close(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				t.Errorf("%v; connections that are open, by kind: %v", err, open)
			}
		})
	}
}
