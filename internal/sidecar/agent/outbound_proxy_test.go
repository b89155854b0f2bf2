package agent

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// A connection to the capture port itself is closed: forwarding it would loop.
func TestNotCaptured(t *testing.T) {
	p, err := startOutboundProxy("127.0.0.1:0", func(netip.AddrPort) bool { return false }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	c, err := net.Dial("tcp", p.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if b, err := io.ReadAll(c); err != nil || len(b) != 0 {
		t.Fatalf("got %q, %v", b, err)
	}
	if total, failed := p.total.Load(), p.failed.Load(); total != 1 || failed != 1 {
		t.Errorf("total %d, failed %d", total, failed)
	}
}

// Both sides of a connection are probed before conntrack forgets one that has been half-closed: its answer would not be
// translated then. 60 s without a packet is nf_conntrack_tcp_timeout_close_wait.
func TestProbesBeforeConntrackForgets(t *testing.T) {
	const forgets = time.Minute
	if k := tcp.KeepAlive; !k.Enable || k.Idle+k.Interval >= forgets {
		t.Errorf("%+v", k)
	}
}
