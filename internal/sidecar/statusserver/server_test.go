package statusserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/loadtest"
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
	c := loadtest.Keep(t, address, time.Minute)
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return c.R
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

// An address that takes all slots displaces its own.
func TestSlots(t *testing.T) {
	c := NewSlots(4)
	var ended []string
	take := func(peer string) *Slot {
		return c.Take(peer, 1, func() { ended = append(ended, peer) })
	}
	kubelet := take("10.0.0.1:1")
	for port := range 5 {
		take(fmt.Sprintf("10.0.0.66:%d", port))
	}
	if want := []string{"10.0.0.66:0", "10.0.0.66:1"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q, want %q", ended, want)
	}
	kubelet.Release()
	kubelet.Release()
	if n := len(ended); take("10.0.0.2:1") == nil || len(ended) != n {
		t.Errorf("%q is ended although a slot was free", ended[n:])
	}
}

// A slot's end may use its user's response, which is no longer valid when the user has returned.
func TestReleaseDuringEnd(t *testing.T) {
	c := NewSlots(1)
	began := make(chan struct{})
	var hasEnded atomic.Bool
	first := c.Take("10.0.0.1:1", 1, func() {
		close(began)
		time.Sleep(20 * time.Millisecond) // Release is called meanwhile
		hasEnded.Store(true)
	})
	go c.Take("10.0.0.1:2", 1, func() { t.Error("the last slot was ended") })
	<-began
	if first.Release(); !hasEnded.Load() {
		t.Error("Release returned before the end")
	}
	second := NewSlots(1).Take("10.0.0.1:1", 1, func() { t.Error("ended after its release") })
	second.Release()
	second.over.Do(second.end)
}

// With keepFirst the first of an address and the latest stay.
func TestSlotsKeepFirst(t *testing.T) {
	c := NewSlots(3)
	c.keepFirst = true
	var ended []string
	for port := range 6 {
		peer := fmt.Sprintf("10.0.0.66:%d", port)
		c.Take(peer, 1, func() { ended = append(ended, peer) })
	}
	if want := []string{"10.0.0.66:1", "10.0.0.66:2", "10.0.0.66:3"}; !slices.Equal(ended, want) || c.n != 3 {
		t.Errorf("ended %q, want %q; %d slots are taken", ended, want, c.n)
	}
}

// However much addresses have taken, the next one gets its part, from the one with the most. One that alone wants more
// than there is gets nothing.
func TestSlotsOfBytes(t *testing.T) {
	c := NewSlots(100)
	var ended []string
	take := func(peer string, n int) *Slot {
		return c.Take(peer, n, func() { ended = append(ended, peer) })
	}
	large := take("10.0.0.66:1", 10)
	if !large.Grow(60) || !take("10.0.0.66:2", 25).Grow(0) || len(ended) > 0 {
		t.Errorf("ended %q although there was enough", ended)
	}
	if quiet := take("10.0.0.1:1", 10); !quiet.Grow(20) || large.Grow(0) || !slices.Equal(ended, []string{"10.0.0.66:1"}) {
		t.Errorf("ended %q, want the oldest of the other address", ended)
	}
	if take("10.0.0.2:1", 200).Grow(0) {
		t.Error("an address got more than there is")
	}
	for _, one := range c.taken {
		for len(one.slots) > 0 {
			one.slots[0].Release()
		}
	}
	if c.n != 0 || len(c.taken) != 0 {
		t.Errorf("%d are taken by %d addresses after their release", c.n, len(c.taken))
	}
}
