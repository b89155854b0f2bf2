package rollout

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is a server with a handler for each connection.
func pod(t *testing.T, handle func(n int, c *net.TCPConn, r *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var handling sync.WaitGroup
	handling.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			handling.Go(func() {
				handle(n, c.(*net.TCPConn), bufio.NewReader(c))
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); handling.Wait() })
	return ln.Addr().String()
}

func closedPort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	return ln.Addr().String()
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// answering says one thing to each request of a connection.
func answering(what string) func(int, *net.TCPConn, *bufio.Reader) {
	return func(_ int, c *net.TCPConn, r *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			if _, err := io.WriteString(c, what); err != nil || what != fine {
				return
			}
		}
	}
}

// What is lost and by what, and what is no loss.
func TestClient(t *testing.T) {
	get := request{method: "GET", path: "/get"}
	for _, tt := range []struct {
		name string
		pods func(t *testing.T) []string
		want Failure
	}{
		{"answered", func(t *testing.T) []string { return []string{pod(t, answering(fine))} }, ""},
		{"refused, and answered elsewhere", func(t *testing.T) []string {
			return []string{closedPort(t), closedPort(t), pod(t, answering(fine))}
		}, ""},
		{"refused everywhere", func(t *testing.T) []string { return []string{closedPort(t), closedPort(t)} }, Refused},
		{"no pods", func(*testing.T) []string { return nil }, NoPods},
		{"503", func(t *testing.T) []string {
			return []string{pod(t, answering("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"))}
		}, "503"},
		{"an end before the answer", func(t *testing.T) []string { return []string{pod(t, answering(""))} }, Ended},
		{"a reset before the answer", func(t *testing.T) []string {
			return []string{pod(t, func(_ int, c *net.TCPConn, r *bufio.Reader) {
				_, _ = http.ReadRequest(r)
				_ = c.SetLinger(0)
			})}
		}, Ended},
		{"a body cut by its length", func(t *testing.T) []string {
			return []string{pod(t, answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"))}
		}, Truncated},
		{"a chunked body cut", func(t *testing.T) []string {
			return []string{pod(t, answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"))}
		}, Truncated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods := tt.pods(t)
			c := newClient(func() []string { return pods })
			defer c.close()
			if got := c.do(t.Context(), get); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A kept connection is used again; one that has been closed meanwhile is
// found so before a byte is sent, and a new one is made.
func TestClientKeepsConnections(t *testing.T) {
	var connections atomic.Int32
	hangUp := make(chan struct{})
	hungUp := make(chan struct{})
	address := pod(t, func(n int, c *net.TCPConn, r *bufio.Reader) {
		connections.Add(1)
		for i := 0; ; i++ {
			if n == 0 && i == 2 {
				<-hangUp
				_ = c.Close()
				close(hungUp)
				return
			}
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			_, _ = io.WriteString(c, fine)
		}
	})
	c := newClient(func() []string { return []string{address} })
	defer c.close()
	for i := range 4 {
		if i == 2 {
			close(hangUp)
			<-hungUp
		}
		if got := c.do(t.Context(), request{method: "GET", path: "/get"}); got != "" {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A request that a kept connection's pod has seen is not made again.
func TestClientRepeatsNothing(t *testing.T) {
	var seen atomic.Int32
	address := pod(t, func(_ int, c *net.TCPConn, r *bufio.Reader) {
		for i := 0; ; i++ {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			if seen.Add(1); i == 1 {
				return
			}
			_, _ = io.WriteString(c, fine)
		}
	})
	c := newClient(func() []string { return []string{address} })
	defer c.close()
	for i, want := range []Failure{"", Ended} {
		if got := c.do(t.Context(), request{method: "GET", path: "/get"}); got != want {
			t.Errorf("request %d: got %q, want %q", i, got, want)
		}
	}
	if n := seen.Load(); n != 2 {
		t.Errorf("the pod has seen %d requests, want 2", n)
	}
}

func TestClientStopped(t *testing.T) {
	address := pod(t, func(_ int, _ *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	c := newClient(func() []string { return []string{address} })
	defer c.close()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan Failure)
	go func() { got <- c.do(ctx, request{method: "GET", path: "/get"}) }()
	cancel()
	if f := <-got; f != Stopped {
		t.Errorf("got %q", f)
	}
}

func newReader(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }
