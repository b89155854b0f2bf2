package httpdrain

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A connection that is on its way to the carrier when the carrier ends gets its GOAWAY as well,
// though it asks for nothing.
func TestOnTheWayToACarrierThatEnds(t *testing.T) {
	var p *Plane
	var carried atomic.Int32
	otherEnded := make(chan error, 1) // the connection that the carrier has already
	server := &http.Server{Protocols: all(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	server.ConnState = func(nc net.Conn, s http.ConnState) {
		if _, ok := nc.(*http2Conn); ok && s == http.StateNew && carried.Add(1) == 2 {
			_ = p.CloseIdle(context.Background(), 0)
			<-otherEnded // Shutdown sends its GOAWAYs in a goroutine of its own
		}
	}
	p = New(server, Options{})
	address := served(t, p, p.Serve)
	other := framer(t, dial(t, address, false, nil))
	if _, err := other.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	go func() { otherEnded <- hasGoAway(other) }()
	if err := hasGoAway(framer(t, dial(t, address, false, nil))); err != nil {
		t.Error(err)
	}
}

// hasGoAway reads to the end, and wants a GOAWAY among the frames.
func hasGoAway(f *http2.Framer) error {
	for found := false; ; {
		frame, err := f.ReadFrame()
		switch {
		case err != nil && !found:
			return fmt.Errorf("%w before a GOAWAY", err)
		case err != nil:
			return nil
		}
		found = found || frame.Header().Type == http2.FrameGoAway
	}
}

// TestUnencryptedHTTP2: net/http hands a connection with prior knowledge of HTTP/2 to the TLSNextProto "unencrypted_http2"
// (golang/go#67816). It has read the preface, and the *tls.Conn wraps the connection. Nothing documents this.
func TestUnencryptedHTTP2(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const next = "what follows the preface"
	got := make(chan error, 1)
	server := &http.Server{Protocols: all(), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){
		"h2": func(*http.Server, *tls.Conn, http.Handler) {}, // or net/http would configure its own HTTP/2
		"unencrypted_http2": func(_ *http.Server, tc *tls.Conn, _ http.Handler) {
			inner, ok := tc.NetConn().(interface{ UnencryptedNetConn() net.Conn })
			if !ok {
				got <- fmt.Errorf("the connection is a %T without UnencryptedNetConn", tc.NetConn())
				return
			}
			b := make([]byte, len(next))
			if _, err := io.ReadFull(inner.UnencryptedNetConn(), b); err != nil || string(b) != next {
				got <- fmt.Errorf("read %q, %w: want %q", b, err, next)
				return
			}
			got <- nil
		},
	}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	defer func() {
		_ = server.Close()
		<-served
	}()
	c := dial(t, ln.Addr().String(), false, nil)
	if _, err := io.WriteString(c, http2.ClientPreface+next); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("net/http does not use TLSNextProto for HTTP/2 without TLS")
	}
}
