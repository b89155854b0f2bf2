package observe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// TestNode: refused connections of the node's own processes are probes, and others are clients.
func TestNode(t *testing.T) {
	n := nettest.New(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	node, err := watchRefusals(ctx, n.Client.Path())
	must.Do(t, err)
	ln := n.Pod.Listen(t, "tcp", n.Pod.TCP4(80))
	w, err := observe.Open(n.Pod.Path(), observe.Options{
		Local:    func(netip.Addr) bool { return true },
		Probes:   []observe.Probe{{Port: 80, Period: 10 * time.Second}, {Port: 80, Period: 10 * time.Second}},
		Refusals: node.since,
	})
	must.Do(t, err)
	defer func() { _ = w.Close() }()
	probe := func(from *nettest.Namespace) error {
		c, err := from.Dial(t.Context(), "tcp", n.Pod.TCP4(80))
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	must.Do(t, probe(n.Client))
	c, err := ln.Accept()
	must.Do(t, err)
	_, _ = c.Close(), ln.Close()
	polltest.Eventually(t, "the listener has closed", func() bool { return !w.Reacted(time.Time{}).IsZero() })
	must.Do(t, w.Begin(time.Now(), "test"))
	for _, from := range []*nettest.Namespace{n.Client, n.Client, n.Pod} {
		if probe(from) == nil {
			t.Fatal("connected")
		}
	}
	polltest.Eventually(t, "nothing is in doubt", func() bool {
		p := w.Peek()
		return p.Lost.Refused == 1 && p.Unclear == (observe.Unclear{})
	})
	if got := w.End(time.Now(), observe.Exit{}); got.Lost != (observe.Lost{Refused: 1}) ||
		got.Unclear != (observe.Unclear{}) {
		t.Errorf("%+v", got)
	}
}
