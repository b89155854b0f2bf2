package httpdrain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// What has begun at the last call ends properly only if its client loses nothing by it,
// whether its handler then returns, as most do, or panics, as ReverseProxy does.
func TestBrokenAnswers(t *testing.T) {
	const (
		events = "text/event-stream; charset=utf-8"
		token  = `data: {"object":"chat.completion.chunk"}` + "\n\n"
		failed = `data: {"error":{"message":"the server is shutting down","type":"server_error","param":null,"code":"server_shutting_down"}}` + "\n\n"
	)
	for _, tt := range []struct {
		name, method, contentType, sent string
		want, ending                    string
	}{
		{"a subscription", "GET", events, "data: 1\n\n", "data: 1\n\nretry: N\n\n", ""},
		{"a subscription within an event", "GET", events, "data: 1\n", "data: 1\n", "truncated"},
		{"an answer", "POST", events, token, token + failed, "error event"},
		{"an answer of no known dialect", "POST", events, "data: 1\n\n", "data: 1\n\n", "truncated"},
		{"a complete answer", "POST", events, token + "data: [DONE]\n\n", token + "data: [DONE]\n\n", ""},
		{"lines", "POST", "application/x-ndjson", "{}\n", "{}\n", "truncated"},
	} {
		for _, version := range []int{1, 2, h2c} {
			for _, panics := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, HTTP/%d, panics %v", tt.name, version, panics), func(t *testing.T) {
					t.Parallel()
					began := make(chan struct{})
					s := play(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", tt.contentType)
						_, _ = io.WriteString(w, tt.sent)
						_ = http.NewResponseController(w).Flush()
						close(began)
						<-r.Context().Done()
						if _, err := io.WriteString(w, "data: more\n\n"); panics {
							panic(http.ErrAbortHandler)
						} else if err == nil && tt.contentType == events {
							t.Error("something is written after the last call")
						}
					}))
					client, url := s.client(t, version)
					req, _ := http.NewRequestWithContext(t.Context(), tt.method, url+"/", nil)
					resp, err := client.Do(req)
					must.Do(t, err)
					defer resp.Body.Close()
					<-began
					first := make([]byte, len(tt.sent))
					if _, err := io.ReadFull(resp.Body, first); err != nil {
						t.Fatal(err)
					}
					requests := new(drain.Requests)
					requests.Send(drain.Hurry) // last call now
					r := run(t, s, config(), requests)
					rest, err := io.ReadAll(resp.Body)
					got := string(first) + regexp.MustCompile(`retry: [12]\d{3}\n`).ReplaceAllString(string(rest), "retry: N\n")
					if len(tt.ending) > 0 && tt.contentType != events {
						got = got[:min(len(got), len(tt.want))] // what its handler has added is cut as well
					}
					if got != tt.want || (err == nil) != (tt.ending == "") {
						t.Errorf("the client reads %q, %v; want %q", got, err, tt.want)
					}
					ending, verdict := "", drain.Clean
					for _, one := range r.Open {
						ending += one.Ending
					}
					if tt.ending != "" {
						verdict = drain.Cut
					}
					if ending != tt.ending || r.Verdict != verdict || len(r.Faults) > 0 {
						t.Errorf("%s, endings %q, faults %v; want %s, %q", r.Verdict, ending, r.Faults, verdict, tt.ending)
					}
				})
			}
		}
	}
}

// TestHalfOfABodyThatEndsWithItsConnection: the end of the connection is all that ends the body of an HTTP/1.0 response
// without a length. A FIN would make half of it look whole.
func TestHalfOfABodyThatEndsWithItsConnection(t *testing.T) {
	// What ends the response after its first half.
	handlers := map[string]func(http.ResponseWriter, *http.Request){
		"the last call, and the handler returns": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"the last call, and the handler ignores it": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(2 * handlersTime)
		},
		"the last call, and the handler panics": func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		},
		"the handler, by a panic": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"the last call, while the client does not read": func(w http.ResponseWriter, r *http.Request) {
			big := []byte(strings.Repeat("x", 1<<20))
			for range 64 {
				if _, err := w.Write(big); err != nil {
					return
				}
			}
		},
	}
	for what, rest := range handlers {
		for request, head := range map[string]string{
			"HTTP/1.0":           "GET /lines HTTP/1.0\r\n\r\n",
			"HTTP/1.1, identity": "GET /identity HTTP/1.1\r\nHost: app\r\n\r\n",
			"HTTP/1.0, events":   "POST /events HTTP/1.0\r\n\r\n",
		} {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s: %s, TLS %v", what, request, secure), func(t *testing.T) {
					t.Parallel()
					begun := make(chan struct{})
					server, config := newTLSServer()
					server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						switch r.URL.Path {
						case "/identity":
							w.Header().Set("Transfer-Encoding", "identity")
						case "/events":
							w.Header().Set("Content-Type", "text/event-stream")
						}
						_, _ = io.WriteString(w, "half")
						_ = http.NewResponseController(w).Flush()
						close(begun)
						rest(w, r)
					})
					p := New(server, Options{})
					c := dial(t, served(t, p, secure), secure, config)
					send(t, c, head)
					<-begun
					in := bufio.NewReader(c)
					for line := ""; line != "\r\n"; {
						var err error
						if line, err = in.ReadString('\n'); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := io.ReadFull(in, make([]byte, len("half"))); err != nil {
						t.Fatal(err)
					}
					if !strings.HasPrefix(what, "the handler") {
						_ = p.Drain(t.Context())
						ended, err := p.LastCall(t.Context(), 0)
						if err != nil || len(ended) != 1 || ended[0].Ending != "truncated" {
							t.Errorf("%+v %v", ended, err)
						}
						if err := p.Close(t.Context()); err != nil && !strings.Contains(what, "ignores") {
							t.Error(err)
						}
					}
					if _, err := io.Copy(io.Discard, in); !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("half of the body ends by %v, want a reset", err)
					}
				})
			}
		}
	}
}

// TestWholeBodyThatEndsWithItsConnection: a whole one ends by a FIN, in a drain as outside of it.
func TestWholeBodyThatEndsWithItsConnection(t *testing.T) {
	for _, draining := range []bool{false, true} {
		s := play(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, ", whole")
		}))
		if draining {
			_ = s.Drain(t.Context())
		}
		c := dial(t, s.plain.String(), false, nil)
		send(t, c, "GET / HTTP/1.0\r\n\r\n")
		if all, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(all), "half, whole") {
			t.Errorf("%q, %v", all, err)
		}
		s.until(t, func(a drain.Activity) bool { return a.Connections == 0 })
	}
}

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
			must.Do(t, err)
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
			if got := connections(t, true, body); got > alone+requests/10 { // net/http's client leaves one whose write it has not seen end for 50 ms
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
				must.Do(t, err)
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
