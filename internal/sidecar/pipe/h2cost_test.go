package pipe

import (
	"bytes"
	"testing"
)

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
