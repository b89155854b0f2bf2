package gateway

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// tooLarge are endpoints that answer a request 413 when its head has come, and read no further.
var tooLarge = map[string]func(t *testing.T) (addr string, protocol Protocol){
	"HTTP/1.1 with a length": func(t *testing.T) (string, Protocol) {
		return answersHead(t, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge"), HTTP1
	},
	"HTTP/1.1 without a body": func(t *testing.T) (string, Protocol) {
		return answersHead(t, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"), HTTP1
	},
	"HTTP/1.1 in chunks": func(t *testing.T) (string, Protocol) {
		return answersHead(t, "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nlarge\r\n0\r\n\r\n"), HTTP1
	},
	"HTTP/1.1 to the end of the connection": func(t *testing.T) (string, Protocol) {
		return answersHead(t, "HTTP/1.1 413 Too Large\r\nConnection: close\r\n\r\nlarge"), HTTP1
	},
	"HTTP/2": func(t *testing.T) (string, Protocol) {
		addr, _, _ := h2cApp(t, 0, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			_, _ = io.WriteString(w, "large")
		})
		return addr, H2C
	},
}

// answersHead answers each connection's first head, and leaves the body.
func answersHead(t *testing.T, answer string) string {
	return raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, answer)
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, r)
	})
}

// A response that comes before the request's end reaches the client, whole, while that pauses in its body.
func TestEarlyResponse(t *testing.T) {
	for name, endpoint := range tooLarge {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct{ name, head, begin string }{
				{"length", "Content-Length: 100000\r\n", "half"},
				{"chunks", "Transfer-Encoding: chunked\r\n", "4\r\nhalf\r\n"},
				{"nothing sent", "Content-Length: 100000\r\n", ""},
			} {
				t.Run("HTTP/1.1 "+tt.name, func(t *testing.T) {
					addr, protocol := endpoint(t)
					g := start(t, setup{Endpoints: []string{addr}, Protocol: protocol})
					c := dial(t, g.addr)
					say(t, c, "POST / HTTP/1.1\r\nHost: a\r\n"+tt.head+"\r\n"+tt.begin)
					r := bufio.NewReader(c)
					resp, body := readResponse(t, r)
					if resp.StatusCode != 413 || len(body) > 0 && body != "large" || !resp.Close {
						t.Errorf("got %s %q, closing %v", resp.Status, body, resp.Close)
					}
					// What would come next is the rest of the body, not a request.
					if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
						t.Errorf("then came %q, %v", rest, err)
					}
					g.access.until(t, " 413 - via_upstream ")
				})
			}
			t.Run("HTTP/2", func(t *testing.T) {
				addr, protocol := endpoint(t)
				g := start(t, setup{Endpoints: []string{addr}, Protocol: protocol})
				c := dial(t, g.addr)
				say(t, c, http2.ClientPreface)
				f := http2.NewFramer(c, c)
				_ = f.WriteSettings()
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{
					0x83, 0x84, 0x86, 0x41, 1, 'a', // POST http / of a
				}})
				_ = f.WriteData(1, false, []byte("half"))
				for {
					frame, err := f.ReadFrame()
					if err != nil {
						t.Fatal("the response's end has not come: ", err)
					}
					if frame.Header().StreamID == 1 && frame.Header().Flags.Has(http2.FlagDataEndStream) {
						break
					}
				}
				g.access.until(t, " 413 - via_upstream ")
			})
		})
	}
}

// The gateway's own answers do not wait for the client either.
func TestEarlyLocalReply(t *testing.T) {
	g := start(t, setup{})
	c := dial(t, g.addr)
	say(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf")
	if resp, body := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 503 || body != "no healthy upstream" || !resp.Close {
		t.Errorf("got %s %q, closing %v", resp.Status, body, resp.Close)
	}
}

// Both may speak at once.
func TestBothSidesAtOnce(t *testing.T) {
	addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(c, req.Body)
	})
	g := start(t, setup{Endpoints: []string{addr}})
	c := dial(t, g.addr)
	r := bufio.NewReader(c)
	say(t, c, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"one", "two", "six"} {
		say(t, c, "3\r\n"+word+"\r\n")
		echo := make([]byte, 3)
		if _, err := io.ReadFull(resp.Body, echo); err != nil || string(echo) != word {
			t.Fatalf("sent %q, got %q, %v", word, echo, err)
		}
	}
	say(t, c, "0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
		t.Errorf("at the end came %q, %v", rest, err)
	}
}

// An endpoint that answers and closes with unread bytes resets the connection: its response counts.
func TestEarlyResponseBeforeAReset(t *testing.T) {
	const answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"
	addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err == nil {
			_, _ = io.WriteString(c, answer)
		}
	})
	g := start(t, setup{Endpoints: []string{addr}, MaxAttempts: 1})
	body := strings.Repeat("x", 8<<20)
	for range 40 {
		c := dial(t, g.addr)
		go func() { _, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n"+body) }()
		if resp, body := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 413 || body != "large" {
			t.Fatalf("got %s %q", resp.Status, body)
		}
		_ = c.Close()
	}
}
