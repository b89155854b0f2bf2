package outbound

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"
)

// A connection to the capture port itself is closed: forwarding it would loop.
func TestNotCaptured(t *testing.T) {
	p, err := Start("127.0.0.1:0", func(netip.AddrPort) bool { return false }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Fatalf("got %q, %v", b, err)
	}
	if s := p.Stats(); s.Total != 1 || s.Failed != 1 {
		t.Errorf("stats %+v", s)
	}
}
