package httpdrain

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// A connection that is on its way to the carrier when the carrier ends gets its GOAWAY as well,
// though it asks for nothing.
func TestOnTheWayToACarrierThatEnds(t *testing.T) {
	var p *Plane
	server := &http.Server{Protocols: all(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	server.ConnState = func(nc net.Conn, s http.ConnState) {
		if _, ok := nc.(*http2Conn); ok && s == http.StateNew {
			_ = p.CloseIdle(context.Background(), 0)
			time.Sleep(20 * time.Millisecond) // Shutdown sends its GOAWAYs in a goroutine of its own
		}
	}
	p = New(server, Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln) }()
	defer func() {
		p.Kill()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for hasGoAway := false; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			if !hasGoAway {
				t.Errorf("%v before a GOAWAY", err)
			}
			return
		}
		if frame.Header().Type == http2.FrameGoAway {
			hasGoAway = true
		}
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
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
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
