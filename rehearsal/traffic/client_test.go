package traffic

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is a server with a handler for each connection.
func pod(t *testing.T, handle func(n int, c *net.TCPConn, r *bufio.Reader)) string {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	var n atomic.Int32
	nettest.Each(t, ln, func(c net.Conn) { handle(int(n.Add(1))-1, c.(*net.TCPConn), bufio.NewReader(c)) })
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
	get := Request{Method: "GET", Path: "/get"}
	closed := func() string { return nettest.FreeAddress(t, "127.0.0.1") }
	says := func(what string) []string { return []string{pod(t, answering(what))} }
	for _, tt := range []struct {
		name string
		pods []string
		want Failure
	}{
		{"answered", says(fine), ""},
		{"refused, and answered elsewhere", append(says(fine), closed(), closed()), ""},
		{"refused everywhere", []string{closed(), closed()}, Refused},
		{"no pods", nil, NoPods},
		{"503", says("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), "503"},
		{"an end before the answer", says(""), Ended},
		{"a reset before the answer", []string{pod(t, func(_ int, c *net.TCPConn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			_ = c.SetLinger(0)
		})}, Ended},
		{"no HTTP", says("220 mail.example ESMTP\r\n"), Ended},
		{"a body cut by its length", says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), Truncated},
		{"a chunked body cut", says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"), Truncated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &Client{Targets: func() []string { return tt.pods }}
			defer c.Close()
			if got := c.Do(t.Context(), get).Failure; got != tt.want {
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
	c := &Client{Targets: func() []string { return []string{address} }}
	defer c.Close()
	for i := range 4 {
		if i == 2 {
			close(hangUp)
			<-hungUp
		}
		if got := c.Do(t.Context(), Request{Method: "GET", Path: "/get"}).Failure; got != "" {
			t.Fatalf("request %d: %s", i, got)
		}
	}
	if n := connections.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

// A request that a pod has seen is not made again, on a fresh connection or a kept one.
func TestClientRepeatsNothing(t *testing.T) {
	for _, before := range []int32{0, 1} { // requests that the connection has carried
		for _, method := range []string{"GET", "POST"} {
			var seen atomic.Int32
			address := pod(t, func(_ int, c *net.TCPConn, r *bufio.Reader) {
				for {
					if _, err := http.ReadRequest(r); err != nil || seen.Add(1) > before {
						return
					}
					_, _ = io.WriteString(c, fine)
				}
			})
			c := &Client{Targets: func() []string { return []string{address} }}
			for i := range before + 1 {
				want := Failure("")
				if i == before {
					want = Ended
				}
				if got := c.Do(t.Context(), Request{Method: method, Path: "/get"}).Failure; got != want {
					t.Errorf("%s %d: got %q, want %q", method, i, got, want)
				}
			}
			c.Close()
			if n := seen.Load(); n != before+1 {
				t.Errorf("%s: the pod has seen %d requests, want %d", method, n, before+1)
			}
		}
	}
}

// A client of a ClusterIP keeps its connection to a pod that is no longer an endpoint, and has no second try.
func TestClusterIPClient(t *testing.T) {
	old := pod(t, answering(fine))
	targets := []string{old}
	c := &Client{ClusterIP: true, Targets: func() []string { return targets }}
	defer c.Close()
	get := Request{Method: "GET", Path: "/get"}
	if o := c.Do(t.Context(), get); o.Failure != "" || o.Address != old {
		t.Fatalf("got %+v", o)
	}
	targets = []string{nettest.FreeAddress(t, "127.0.0.1"), nettest.FreeAddress(t, "127.0.0.1")}
	if o := c.Do(t.Context(), get); o.Failure != "" || o.Address != old || o.Conn != 1 {
		t.Errorf("on a kept connection: %+v", o)
	}
	c.Close()
	if o := c.Do(t.Context(), get); o.Failure != Refused {
		t.Errorf("on a new connection: %+v", o)
	}
}

// How a WebSocket's end is judged.
func TestWebSocket(t *testing.T) {
	closing := func(code uint16) []byte { return binary.BigEndian.AppendUint16([]byte{0x88, 2}, code) }
	for _, tt := range []struct {
		name  string
		after []byte // what the pod sends after one message
		want  Failure
	}{
		{"going away", closing(1001), ""},
		{"service restart", closing(1012), ""},
		{"no code", []byte{0x88, 0}, ""},
		{"an internal error", closing(1011), NoClose},
		{"no close frame", nil, NoClose},
		{"half a frame", []byte{0x81, 126, 1}, NoClose},
	} {
		t.Run(tt.name, func(t *testing.T) {
			address := pod(t, func(_ int, c *net.TCPConn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				var head [6 + 5]byte // a masked message of 5 bytes
				_, _ = io.ReadFull(r, head[:])
				_, _ = c.Write(append([]byte{0x81, 5}, head[6:]...))
				_, _ = c.Write(tt.after)
			})
			c := &Client{Targets: func() []string { return []string{address} }}
			defer c.Close()
			o := c.Do(t.Context(), Request{Protocol: WebSocket, Path: "/ws", Body: "hello"})
			if o.Failure != tt.want || string(o.Tail) != "hello" {
				t.Errorf("got %+v", o)
			}
		})
	}
}

// A TCP exchange ends with the connection.
func TestTCP(t *testing.T) {
	address := pod(t, func(_ int, c *net.TCPConn, r *bufio.Reader) {
		line, _ := r.ReadString('\n')
		_, _ = io.WriteString(c, "+"+line)
	})
	c := &Client{Targets: func() []string { return []string{address} }}
	defer c.Close()
	if o := c.Do(t.Context(), Request{Protocol: TCP, Body: "PING\r\n"}); o.Failure != "" || o.Bytes != 7 || !o.IsByClose {
		t.Errorf("got %+v", o)
	}
}

func TestClientStopped(t *testing.T) {
	address := pod(t, func(_ int, _ *net.TCPConn, r *bufio.Reader) { _, _ = io.Copy(io.Discard, r) })
	c := &Client{Targets: func() []string { return []string{address} }}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan Failure)
	go func() { got <- c.Do(ctx, Request{Method: "GET", Path: "/get"}).Failure }()
	cancel()
	if f := <-got; f != Stopped {
		t.Errorf("got %q", f)
	}
}
