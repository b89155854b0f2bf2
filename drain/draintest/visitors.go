package draintest

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

// visitors are clients that come at any moment of a drain. None of them is a reason to wait for
// longer than a moment.
var visitors = map[string]func(v visitor){
	"says nothing":     func(visitor) {},
	"an empty line":    func(v visitor) { v.say("\r\n") },
	"half a head":      func(v visitor) { v.say("GET / HTTP/1.1\r\nHo") },
	"asks by HTTP/1.1": func(v visitor) { v.say(request, request) },
	"half a preface":   func(v visitor) { v.say(http2.ClientPreface[:9]) },
	"a preface":        func(v visitor) { v.say(http2.ClientPreface) },
	"SETTINGS":         func(v visitor) { v.greet() },
	"half a frame":     func(v visitor) { v.greet(); v.say("\x00\x00\x10\x01") },
	"half a header block": func(v visitor) {
		f := v.greet()
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	},
	"pings": func(v visitor) {
		f := v.greet()
		for range 10 {
			v.pause()
			_ = f.WritePing(false, [8]byte{})
		}
	},
	"windows": func(v visitor) {
		f := v.greet()
		for range 10 {
			v.pause()
			_ = f.WriteWindowUpdate(0, 1)
		}
	},
	"asks by HTTP/2": func(v visitor) {
		f := v.greet()
		for i := range uint32(3) {
			ask(f, 2*i+1)
			v.pause()
		}
	},
	"asks and pings": func(v visitor) {
		f := v.greet()
		ask(f, 1)
		for range 10 {
			v.pause()
			_ = f.WritePing(false, [8]byte{})
		}
	},
	"asks and takes it back": func(v visitor) {
		f := v.greet()
		for i := range uint32(3) {
			ask(f, 2*i+1)
			v.pause()
			_ = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
	},
	"says goodbye itself": func(v visitor) {
		f := v.greet()
		ask(f, 1)
		v.pause()
		_ = f.WriteGoAway(0, http2.ErrCodeNo, nil)
	},
}

const request = "GET / HTTP/1.1\r\nHost: app\r\n\r\n"

type visitor struct{ net.Conn }

func (v visitor) pause() { time.Sleep(rand.N(10 * time.Millisecond)) }

func (v visitor) say(words ...string) {
	for _, word := range words {
		_, _ = io.WriteString(v, word)
		v.pause()
	}
}

func (v visitor) greet() *http2.Framer {
	v.say(http2.ClientPreface)
	f := http2.NewFramer(v, v)
	_ = f.WriteSettings()
	v.pause()
	return f
}

func ask(f *http2.Framer, id uint32) {
	block := append([]byte{0x82, 0x86, 0x84, 0x01, 3}, "app"...) // GET, http, /, :authority
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: true})
}

// Visit has clients of every kind come while a real data plane that speaks HTTP/1.1 and HTTP/2 in clear is
// ended, step by step as by drain.Termination, and fails the test where one of them keeps it from its end. start
// makes the plane and says how to connect to it; its app answers in less than 20 ms, and a head has 300 ms.
func Visit(t *testing.T, start func(t *testing.T, round int) (plane drain.DataPlane, dial func() (net.Conn, error))) {
	const rounds, each, patience = 6, 4, 20 * time.Second
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Parallel() // what it takes is waiting
			p, dial := start(t, round)
			var all sync.WaitGroup
			var mu sync.Mutex
			open := map[string]int{} // by kind
			count := func(kind string, n int) {
				mu.Lock()
				defer mu.Unlock()
				if open[kind] += n; open[kind] == 0 {
					delete(open, kind)
				}
			}
			for kind, visit := range visitors {
				for range each {
					all.Go(func() {
						time.Sleep(rand.N(80 * time.Millisecond))
						c, err := dial()
						if err != nil {
							return // it is too late
						}
						count(kind, 1)
						defer c.Close()
						var visiting sync.WaitGroup
						visiting.Go(func() {
							time.Sleep(rand.N(40 * time.Millisecond)) // the end may come before its first word
							visit(visitor{c})
						})
						_ = c.SetReadDeadline(time.Now().Add(2 * patience))
						_, _ = io.Copy(io.Discard, c)
						count(kind, -1)
						visiting.Wait()
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
