package sockets

import (
	"context"
	"net/netip"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// How often the table is read; see sockdiag.Loop. It costs 0.4 % of a core. The kernel has the time of the last bytes,
// and reports the end of sockets: a late look costs time, and hides only which side sent last if both did in one jiffy.
const (
	lookShare = 600
	lookMin   = 30 * time.Millisecond
	lookMax   = 250 * time.Millisecond
	lookPause = 5 * time.Millisecond
)

// begin starts to watch, once.
func (p *Plane) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil {
		return
	}
	w := &sockdiag.Loop{
		Share: lookShare, Min: lookMin, Max: lookMax, Pause: lookPause,
		Look: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			_, _ = p.look() // an error is announced as a change; Activity returns it
		},
		Next: func() (cost time.Duration, wish time.Time) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.cost, p.ledger.next()
		},
		Silent: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ledger.reports = false
		},
	}
	if reports, err := p.kernel.watch(p.o.Ports); err == nil {
		w.Reports = reports
	} else {
		p.o.Log.Warn("the kernel does not report closed connections; short ones may be missed, so the quiet time lasts to its cap")
	}
	p.ledger.since, p.ledger.reports = time.Now(), w.Reports != nil
	p.watch = w
	w.Start(context.Background())
	if p.o.Linkerd != 0 {
		go p.askLinkerd(w)
	}
}

// end stops it.
func (p *Plane) end() {
	p.mu.Lock()
	w := p.watch
	p.watch = nil
	p.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

// ambientProbes are the addresses to which istio-cni translates, for pods in Istio's ambient mesh, those of all
// connections from their node: the kubelet's probes, but also clients with hostNetwork. See istio-cni's
// HOST_PROBE_SNAT_IP and HOST_PROBE_SNAT_IPV6. The kubelet continues its readiness probes until the app ends, so they
// say nothing about clients that still have to notice the end of the pod: they do not extend the quiet time. Requests
// in flight from there are busy like all others, because not all of them are probes.
var ambientProbes = []netip.Addr{
	netip.MustParseAddr("169.254.7.127"),
	netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff"),
}
