package sideport

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	ln := nettest.Listen(t, "127.0.0.1:0")
	s := New(h, slog.New(slog.DiscardHandler))
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := s.Serve(Limit(ln)); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = s.Close(); <-served })
	return ln.Addr().String()
}

func dial(t *testing.T, address, send string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}

// More connections than there may be end the oldest, and not one that waits.
func TestConnectionLimit(t *testing.T) {
	begun, answer := make(chan struct{}), make(chan struct{})
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer Hold(w, r)()
		close(begun)
		<-answer
		_, _ = io.WriteString(w, "drained")
	}))
	hook := dial(t, address, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	first := dial(t, address, "")
	for range maxConnections {
		dial(t, address, "")
	}
	if _, err := first.ReadByte(); err == nil {
		t.Error("the oldest connection is still open")
	}
	close(answer)
	resp, err := http.ReadResponse(hook, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); string(b) != "drained" {
		t.Errorf("the hook got %q, %v", b, err)
	}
}

// One scrape more than there may be ends the oldest one, which nothing reads.
func TestScrapeLimit(t *testing.T) {
	begun := make(chan struct{}, 100)
	address := serve(t, Scrapes(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		for line := []byte(strings.Repeat("x", 1023) + "\n"); r.Context().Err() == nil; {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})))
	first := dial(t, address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
	<-begun
	for range maxScrapes {
		dial(t, address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		<-begun
	}
	if n, err := io.Copy(io.Discard, first); n > 32<<20 {
		t.Errorf("the oldest scrape continued: %d bytes, %v", n, err)
	}
}

// A body that is too long is refused, one that is short does no harm.
func TestBodies(t *testing.T) {
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	for size, want := range map[int]int{0: 200, 100: 200, maxBody + 1: 413} {
		in := dial(t, address, fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("a body of %d bytes: %v, %v; want %d", size, resp, err, want)
		}
	}
}

func TestForeign(t *testing.T) {
	for _, tt := range []struct {
		host    string
		headers []string
		foreign bool
	}{
		{"", nil, false},
		{"127.0.0.1:15020", nil, false},
		{"10.244.0.7:15020", nil, false},
		{"[::1]:15000", nil, false},
		{"[fd00::1]", nil, false},
		{"localhost", nil, false},
		{"LocalHost.:15000", nil, false},
		{"localhost:15000", []string{"Origin", "http://localhost:15000", "Sec-Fetch-Site", "same-origin"}, false},
		{"localhost:15000", []string{"Sec-Fetch-Site", "none"}, false},
		{"localhost:15000", []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"localhost:15000", []string{"Sec-Fetch-Site", "same-site"}, true},
		{"localhost:15000", []string{"Origin", "http://localhost:8080"}, true},
		{"localhost:15000", []string{"Origin", "null"}, true},
		{"localhost:15000", []string{"Origin", "%"}, true},
		{"evil.example:15000", nil, true},
		{"localhost.evil.example", nil, true},
		{"1.2.3.4.evil.example", nil, true},
	} {
		r := &http.Request{Host: tt.host, Header: http.Header{}}
		for i := 0; i < len(tt.headers); i += 2 {
			r.Header.Set(tt.headers[i], tt.headers[i+1])
		}
		if err := Foreign(r); (err != nil) != tt.foreign {
			t.Errorf("host %q, %q: %v", tt.host, tt.headers, err)
		}
	}
}
