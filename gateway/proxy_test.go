package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"
)

// app is an upstream with a handler, for what needs no odd bytes.
func app(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// within waits for an event of an upstream or a client.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s has not come", what)
		panic("unreachable")
	}
}

// eachProtocol runs a test with a client of either protocol.
func eachProtocol(t *testing.T, test func(t *testing.T, h2 bool)) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%v", h2), func(t *testing.T) { test(t, h2) })
	}
}

// Which fields reach the endpoint.
func TestRequestAsTheEndpointSeesIt(t *testing.T) {
	eachProtocol(t, func(t *testing.T, h2 bool) {
		addr := app(t, func(w http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Accept-Encoding", "Connection", "X-Hop"} {
				_, _ = fmt.Fprintf(w, "%s=%s\n", name, strings.Join(r.Header.Values(name), "|"))
			}
			_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, r.RequestURI)
		})
		g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
		c, url := g.client(t, h2)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/a%2Fb/c?x=1;y=%zz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "shop.example"
		req.Header.Set("X-Forwarded-For", "203.0.113.9")
		req.Header.Set("X-Forwarded-Host", "front.example")
		if !h2 {
			req.Header.Set("Connection", "X-Hop")
			req.Header.Set("X-Hop", "1")
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		want := "X-Forwarded-For=203.0.113.9,127.0.0.1\nX-Forwarded-Proto=https\nX-Forwarded-Host=\nAccept-Encoding=\nConnection=\nX-Hop=\nGET shop.example /a%2Fb/c?x=1;y=%zz"
		if string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

func TestTrailers(t *testing.T) {
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprintf("announced=%v", announced), func(t *testing.T) {
			seen := make(chan string, 1)
			addr := app(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				seen <- r.Trailer.Get("X-Sum")
				name := "X-After"
				if announced {
					w.Header().Set("Trailer", name)
				} else {
					name = http.TrailerPrefix + name
				}
				_, _ = io.WriteString(w, "body")
				_ = http.NewResponseController(w).Flush() // a head with a length has no trailers
				w.Header().Set(name, "later")
			})
			g := start(t, setup{Endpoints: []string{addr}})
			c := dial(t, g.addr)
			head := "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
			if announced {
				head += "Trailer: X-Sum\r\n"
			}
			say(t, c, head+"\r\n4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n")
			resp, body := readResponse(t, bufio.NewReader(c))
			if sum := within(t, "request", seen); sum != "42" {
				t.Errorf("the endpoint saw the trailer %q", sum)
			}
			if after := resp.Trailer.Get("X-After"); body != "body" || after != "later" {
				t.Errorf("the client got %q with the trailer %q", body, after)
			}
		})
	}
	t.Run("HTTP/2", func(t *testing.T) {
		addr := app(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set(http.TrailerPrefix+"X-After", r.Trailer.Get("X-Sum"))
		})
		g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
		c, url := g.client(t, true)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"X-Sum": {"42"}}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if got := resp.Trailer.Get("X-After"); got != "42" {
			t.Errorf("there and back came %q", got)
		}
	})
}

// Neither a request nor a response waits in the gateway for its end.
func TestBodiesAreStreamed(t *testing.T) {
	eachProtocol(t, func(t *testing.T, h2 bool) {
		parts := make(lines)
		more := make(chan struct{})
		addr := app(t, func(w http.ResponseWriter, r *http.Request) {
			buf := make([]byte, 5)
			_, _ = io.ReadFull(r.Body, buf)
			parts <- string(buf)
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
			<-more
			_, _ = io.WriteString(w, "second")
		})
		g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
		c, url := g.client(t, h2)
		body, write := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(write, "begin") }()
		answers := make(chan *http.Response, 1)
		go func() {
			defer close(answers)
			if resp, err := c.Do(req); err == nil {
				answers <- resp
			}
		}()
		if got := parts.next(t); got != "begin" {
			t.Errorf("before the request's end came %q", got)
		}
		_ = write.Close()
		resp := within(t, "response", answers)
		if resp == nil {
			t.Fatal("no response")
		}
		defer resp.Body.Close()
		first := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
			t.Errorf("before the response's end came %q, %v", first, err)
		}
		close(more)
		if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second" {
			t.Errorf("then came %q, %v", rest, err)
		}
	})
}

func TestExpectContinue(t *testing.T) {
	t.Run("expects 100-continue", func(t *testing.T) {
		addr := app(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
		g := start(t, setup{Endpoints: []string{addr}})
		c := dial(t, g.addr)
		r := bufio.NewReader(c)
		say(t, c, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
		if resp, _ := readResponse(t, r); resp.StatusCode != 100 {
			t.Fatalf("first came %s", resp.Status)
		}
		say(t, c, "body")
		if resp, body := readResponse(t, r); resp.StatusCode != 200 || body != "body" {
			t.Errorf("then came %s %q", resp.Status, body)
		}
	})
	t.Run("refused without the body", func(t *testing.T) {
		addr := app(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
		g := start(t, setup{Endpoints: []string{addr}})
		c := dial(t, g.addr)
		say(t, c, "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n")
		if resp, _ := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 413 {
			t.Errorf("got %s", resp.Status)
		}
		g.access.until(t, " 413 - via_upstream ")
	})
}

func TestInterimResponses(t *testing.T) {
	eachProtocol(t, func(t *testing.T, h2 bool) {
		addr := app(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNoContent)
		})
		g := start(t, setup{Endpoints: []string{addr}, Certificates: selfSigned(t)})
		c, url := g.client(t, h2)
		var hints []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprint(code, h.Get("Link")))
			return nil
		}})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 204 || !slices.Equal(hints, []string{"103</a.css>"}) {
			t.Errorf("got %d after %v", resp.StatusCode, hints)
		}
	})
}

// After a 101 all bytes pass, both ways, each side's end too, and what the
// client sent right behind its head.
func TestUpgrade(t *testing.T) {
	addr := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		req, err := readRequest(r)
		if err != nil || req.Header.Get("Upgrade") != "websocket" {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello ")
		_, _ = io.Copy(c, r) // until the client's end; then ours
	})
	g := start(t, setup{Endpoints: []string{addr}, RequestTimeout: patience})
	c := dial(t, g.addr)
	say(t, c, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly ")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	say(t, c, "late")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "hello early late" {
		t.Errorf("got %q, %v", got, err)
	}
	g.access.until(t, `"GET /chat HTTP/1.1" 101 - via_upstream - "-" 10 16 `)
}

func TestConnectIsNotRouted(t *testing.T) {
	g := start(t, setup{Endpoints: []string{closed(t)}})
	c := dial(t, g.addr)
	say(t, c, "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n")
	if resp, body := readResponse(t, bufio.NewReader(c)); resp.StatusCode != 404 || body != "" {
		t.Errorf("got %s %q", resp.Status, body)
	}
	g.access.until(t, `"CONNECT - HTTP/1.1" 404 NR route_not_found `)
}
