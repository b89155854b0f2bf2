package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// TestPresences counts the ends of app containers that come after the termination has begun, and waits for all.
func TestPresences(t *testing.T) {
	for _, tt := range []struct {
		name       string
		containers int
		ends       []time.Duration // of each presence, from the termination's beginning
		gone       time.Duration   // 0: not known
	}{
		{"one", 1, []time.Duration{20 * time.Second}, 20 * time.Second},
		{"none has been left", 1, nil, 0},
		{"one was restarted before, and lives", 1, []time.Duration{-time.Second}, 0},
		{"one was restarted before, and ends now", 1, []time.Duration{-time.Second, 5 * time.Second}, 5 * time.Second},
		{"two", 2, []time.Duration{5 * time.Second, 9 * time.Second}, 9 * time.Second},
		{"one of two cannot be seen", 2, []time.Duration{5 * time.Second}, 0},
		{"more than were expected", 1, []time.Duration{5 * time.Second, 9 * time.Second}, 9 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPresences()
				for _, end := range tt.ends {
					p.Set(func() { p.alive++ })
					time.AfterFunc(time.Minute+end, func() { p.Set(func() { p.alive--; p.ended++ }) })
				}
				time.Sleep(time.Minute)
				p.begin()
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := p.awaitGone(ctx, tt.containers)
				if took := time.Since(began); tt.gone == 0 && err == nil || tt.gone > 0 && (err != nil || took != tt.gone) {
					t.Errorf("%v after %v, want %v", err, took, tt.gone)
				}
			})
		})
	}
}

// TestPresent is a connection that ends with its process, whatever that was about to say.
func TestPresent(t *testing.T) {
	a := &agent{phases: new(phases), presences: newPresences()}
	s := &status{a: a}
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, own(s.present))
	a.presences.begin()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "POST /present HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	if line := make([]byte, 12); !isRead(c, line) || string(line) != "HTTP/1.1 200" {
		t.Fatalf("%q", line)
	}
	gone := make(chan error, 1)
	go func() { gone <- a.presences.awaitGone(t.Context(), 1) }()
	select {
	case err := <-gone:
		t.Fatalf("gone while it is there: %v", err)
	default:
	}
	_ = c.Close()
	if err := <-gone; err != nil {
		t.Error(err)
	}
	a.presences.end()
	a.presences.end()
}

func isRead(c net.Conn, b []byte) bool {
	_, err := io.ReadFull(c, b)
	return err == nil
}
