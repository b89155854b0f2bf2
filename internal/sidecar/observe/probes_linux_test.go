package observe

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// TestProbes: the times of connections show which are the kubelet's probes; see the picture in probes_linux.go.
func TestProbes(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	every := func(from, to, period float64) (all []float64) {
		for ; from <= to; from += period {
			all = append(all, from)
		}
		return all
	}
	second := []Probe{{8080, time.Second}}
	for _, tt := range []struct {
		name                  string
		probes                []Probe
		seen, refused         []float64 // seconds after the beginning
		probe, perhaps, other int
	}{
		{"refused probes, each at its time", second, every(-8, 0, 1), every(1, 6, 1), 6, 0, 0},
		{"a busy kubelet", second, every(-8, 0, 1), []float64{1.1, 2, 3.2, 4}, 4, 0, 0},
		{"clients between them", second, every(-8, 0, 1), []float64{0.5, 1, 1.5, 2}, 2, 0, 2},
		{"two clients in place of one probe", second, every(-8, 0, 1), []float64{1, 1, 1}, 1, 0, 2},
		{"many clients on the node's address", second, every(-8, 0, 0.1), []float64{1, 2}, 0, 2, 0},
		{"one was missed", second, []float64{-3, -2, -1}, []float64{1}, 1, 0, 0},
		{"never seen before", []Probe{{8080, 10 * time.Second}}, nil, []float64{0.3, 0.4}, 0, 1, 1},
		{"seen once: the kubelet's first one comes at another moment", []Probe{{8080, 10 * time.Second}}, []float64{-3}, []float64{1, 2}, 0, 1, 1},
		{"no probes", nil, every(-8, 0, 1), []float64{1, 2}, 0, 0, 2},
		{"readiness each second, liveness each ten", []Probe{{8080, time.Second}, {8080, 10 * time.Second}}, append(every(-8, 0, 1), -3.4), every(1, 9, 1), 9, 0, 0},
	} {
		p := newProbes(tt.probes, nil)
		for range 2 { // a connection is noted when it is seen, and when it ends
			for _, seconds := range tt.seen {
				p.note(8080, at(seconds))
			}
		}
		probe, perhaps, other := 0, 0, 0
		for _, seconds := range tt.refused {
			is, isCertain := p.take(began, at(seconds-0.025), at(seconds))
			switch {
			case isCertain:
				probe++
			case is:
				perhaps++
			default:
				other++
			}
		}
		if probe != tt.probe || perhaps != tt.perhaps || other != tt.other {
			t.Errorf("%s: %d probes, %d perhaps, %d others; want %d, %d, %d", tt.name, probe, perhaps, other, tt.probe, tt.perhaps, tt.other)
		}
	}
}

// TestLostProbe: a probe that is reset with the app is none of the clients', whether a look has shown it or not, and counts once.
func TestLostProbe(t *testing.T) {
	began, kubelet := time.Unix(1e9, 0), netip.MustParseAddrPort("10.244.0.1:32874")
	after := began.Add(10 * time.Millisecond)
	for _, tt := range []struct {
		name string
		e    ending
		want Maybe
	}{
		{"not accepted, and its peer is forgotten", ending{at: after, arrived: after, queued: true}, Maybe{Probes: 1}},
		{"not accepted, before the beginning", ending{at: after, arrived: began.Add(-time.Second), queued: true, known: true, sample: Sample{Peer: kubelet}}, Maybe{Probes: 1}},
		{"accepted", ending{at: after, arrived: began.Add(-time.Second), known: true, sample: Sample{Peer: kubelet}}, Maybe{Probes: 1}},
		{"a client's", ending{at: after, arrived: began.Add(-time.Second), known: true, sample: Sample{Peer: mustRemote}}, Maybe{}},
	} {
		g := newLedger(Options{Probes: []Probe{{8080, 5 * time.Second}}, Local: func(a netip.Addr) bool { return a == kubelet.Addr() }})
		g.begin(began, "test")
		tt.e.fate, tt.e.requests, tt.e.sample.Port = wasReset, 1, 8080
		for range 2 {
			g.include(tt.e)
		}
		if got := g.result; got.Maybe != tt.want || got.Lost.Reset != 2-tt.want.Probes {
			t.Errorf("%s, and a second one: %+v, %+v", tt.name, got.Lost, got.Maybe)
		}
	}
}

// TestRefusedProbe: what the node shows as its own was no client, also if the kubelet was late, or a sidecar is in between.
func TestRefusedProbe(t *testing.T) {
	began, pod := time.Unix(1e9, 0), netip.MustParseAddrPort("10.244.0.9:8080")
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct {
		name    string
		proxies []uint16
		shown   []int // by the node, ms
		want    Lost
		maybe   Maybe
	}{
		{"two, of which one is late", nil, []int{1010, 2900}, Lost{}, Maybe{}},
		{"one and a client", nil, []int{1010}, Lost{Refused: 1}, Maybe{}},
		{"behind a sidecar", []uint16{15006}, []int{1010, 2010}, Lost{}, Maybe{}},
		{"behind a sidecar, one passed on or a client", []uint16{15006}, []int{1010}, Lost{}, Maybe{Probes: 1}},
	} {
		g := newLedger(Options{Probes: []Probe{{8080, 5 * time.Second}}, ProxyPorts: tt.proxies, Node: new(Node)})
		g.begin(began, "test")
		g.refusals = []refusal{{at(900), at(1000), 1, true}, {at(1900), at(2000), 1, true}}
		for _, ms := range tt.shown {
			g.probes.refused = append(g.probes.refused, sockdiag.Socket{Remote: pod, Ended: at(ms)})
		}
		g.probes.completeUntil = at(9000)
		got := Termination{Begin: began}
		if g.addRefused(&got); got.Lost != tt.want || got.Maybe != tt.maybe {
			t.Errorf("%s: %+v, %+v", tt.name, got.Lost, got.Maybe)
		}
	}
}

// TestNode: refused connections of the node's own processes are probes, and others are clients, although one probe that was
// seen does not show when the next ones come.
func TestNode(t *testing.T) {
	n := nettest.New(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	node, err := OpenNode(ctx, n.Client.Path())
	must(t, err)
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
	must(t, probe(n.Client))
	c, err := ln.Accept()
	must(t, err)
	_, _ = c.Close(), ln.Close()
	polltest.Eventually(t, "the listener has closed", func() bool { return !w.Reacted(time.Time{}).IsZero() })
	must(t, begun(w))
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
