package observe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// TestNode: refused connections of the node's own processes are probes, and others are clients, although one probe that was
// seen does not show when the next ones come.
func TestNode(t *testing.T) {
	n := nettest.New(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	node, err := OpenNode(ctx, n.Client.Path())
	if err != nil {
		t.Fatal(err)
	}
	ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
	w := watched(t, n.Pod.Path(), Options{
		Local: func(netip.Addr) bool { return true }, Probes: []Probe{{80, 10 * time.Second}}, Node: node,
	}, (*Watch).Standby)
	probe := func(from *nettest.Namespace) error {
		c, err := from.Dial(t.Context(), "tcp", n.Pod.TCP4(80))
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := probe(n.Client); err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Close(), ln.Close()
	polltest.Eventually(t, "the listener has closed", func() bool { return !w.Reacted(time.Time{}).IsZero() })
	if err := w.Begin(time.Now(), "test"); err != nil {
		t.Fatal(err)
	}
	for _, from := range []*nettest.Namespace{n.Client, n.Client, n.Pod} {
		if probe(from) == nil {
			t.Fatal("connected")
		}
	}
	polltest.Eventually(t, "nothing is in doubt", func() bool {
		p := w.Peek()
		return p.Lost.Refused == 1 && p.Maybe == (Maybe{})
	})
	if got := w.End(time.Now(), Exit{}); got.Lost != (Lost{Refused: 1}) || got.Maybe != (Maybe{}) {
		t.Errorf("%s", got.Text())
	}
}
