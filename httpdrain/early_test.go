package httpdrain

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// TestUnreadBodyKeepsTheConnection: outside a drain, requests whose bodies the handler does not read need as many
// connections as with net/http alone.
func TestUnreadBodyKeepsTheConnection(t *testing.T) {
	t.Parallel()
	const requests = 100
	// connections counts those that a client needs.
	connections := func(t *testing.T, withPlane bool, body func() io.Reader) int64 {
		var opened atomic.Int64
		server := &http.Server{
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }),
			ReadHeaderTimeout: patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			ConnState: func(_ net.Conn, s http.ConnState) {
				if s == http.StateNew {
					opened.Add(1)
				}
			},
		}
		var address string
		if withPlane {
			p := New(server, Options{})
			address = served(t, p, false)
		} else {
			ln := loopback(t)
			address = ln.Addr().String()
			go func() { _ = server.Serve(ln) }()
			t.Cleanup(func() { _ = server.Close() })
		}
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport, Timeout: patience}
		for range requests {
			resp, err := client.Post("http://"+address, "text/plain", body())
			must(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Fatal(resp.Status)
			}
		}
		return opened.Load()
	}
	for name, body := range map[string]func() io.Reader{
		"1 KiB":         func() io.Reader { return strings.NewReader(strings.Repeat("x", 1<<10)) },
		"200 KiB":       func() io.Reader { return strings.NewReader(strings.Repeat("x", 200<<10)) },
		"1 KiB chunked": func() io.Reader { return io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<10))) },
		"none":          func() io.Reader { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			alone := connections(t, false, body)
			if got := connections(t, true, body); got != alone {
				t.Errorf("%d requests need %d connections, with net/http alone %d", requests, got, alone)
			}
		})
	}
}

// TestPausedUpload: in a drain a response does not wait for the rest of its request, whenever the handler has returned.
func TestPausedUpload(t *testing.T) {
	for _, tt := range []struct {
		name   string
		during bool // the request comes in the drain
	}{{"before the drain", false}, {"in the drain", true}} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", tt.name, secure), func(t *testing.T) {
				server, config := newTLSServer()
				p := New(server, Options{})
				if tt.during {
					_ = p.Drain(t.Context())
				}
				c := dial(t, served(t, p, secure), secure, config)
				send(t, c, "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 1000\r\n\r\nx")
				in := bufio.NewReader(c)
				if !tt.during {
					// net/http waits for the rest: the response must not come.
					_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
					if _, err := in.Peek(1); err == nil {
						t.Fatal("net/http has responded before the request was complete: this test shows nothing")
					}
					_ = c.SetReadDeadline(time.Now().Add(patience))
					_ = p.Drain(t.Context())
				}
				resp, err := http.ReadResponse(in, nil)
				must(t, err)
				if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "HTTP/1.1" || !resp.Close {
					t.Errorf("%q, %v, close %v; want the response, and Connection: close", body, err, resp.Close)
				}
				if _, err := in.ReadByte(); err != io.EOF {
					t.Errorf("after the response: %v, want a FIN", err)
				}
				polltest.NoError(t, func() error {
					if a, _ := p.Activity(t.Context()); a != (drain.Activity{Known: true, Arrivals: a.Arrivals}) {
						return fmt.Errorf("%+v; want no connection", a)
					}
					return nil
				})
			})
		}
	}
}
