package httpdrain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

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
					if _, err := io.WriteString(c, head); err != nil {
						t.Fatal(err)
					}
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
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if all, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(all), "half, whole") {
			t.Errorf("%q, %v", all, err)
		}
		s.until(t, func(a drain.Activity) bool { return a.Connections == 0 })
	}
}
