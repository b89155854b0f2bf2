package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// raw is an upstream that calls serve with each connection and its number, from 0.
func raw(t *testing.T, serve func(n int, c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

// closed is an address without a listener.
func closed(t *testing.T) string {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer ln.Close()
	return ln.Addr().String()
}

// readRequest takes one request, with its body, off r.
func readRequest(r *bufio.Reader) (*http.Request, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return req, err
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// answers serves every request with ok.
func answers(_ int, c net.Conn, r *bufio.Reader) {
	for {
		if _, err := readRequest(r); err != nil {
			return
		}
		if _, err := io.WriteString(c, ok); err != nil {
			return
		}
	}
}
