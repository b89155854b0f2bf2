package httpdrain

import (
	"context"
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
	for goodbye := false; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			if !goodbye {
				t.Errorf("%v before a GOAWAY", err)
			}
			return
		}
		if frame.Header().Type == http2.FrameGoAway {
			goodbye = true
		}
	}
}
