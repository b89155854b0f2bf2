package envoy

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// How often the kernel's table is read during a drain; see sockdiag.Loop. It costs 0.3 % of a core. The kernel reports
// the end of sockets: looks at intervals only show bytes that move and new connections.
const (
	lookShare = 800
	lookMin   = 50 * time.Millisecond
	lookMax   = 400 * time.Millisecond
)

// begin starts to watch, once.
func (p *Plane) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil || p.o.Istio {
		return
	}
	w := &sockdiag.Loop{
		Share: lookShare, Min: lookMin, Max: lookMax,
		Look: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			_, _ = p.look() // an error is announced as a change; Activity returns it
		},
		Next:    p.nextLook,
		Recheck: p.answered,
		Silent: func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ledger.arrivals.reports = false
		},
	}
	if p.table != nil && !p.o.blind {
		if destroyed, err := sockdiag.WatchDestroyed(p.layout.ports); err == nil {
			w.Reports = destroyed
		}
	}
	p.ledger.arrivals.count(w.Reports != nil, time.Now())
	if p.ledger.cannotCount() {
		p.log.Warn("new connections cannot be counted by the kernel or by Envoy's stats; draining until the cap of the quiet time", "hint", "set "+matcherHint)
	}
	p.watch, p.closing, p.ignoresArrivals = w, false, false
	w.Start(p.life)
}

// end stops it.
func (p *Plane) end() {
	p.mu.Lock()
	w := p.watch
	p.watch = nil
	if w != nil {
		p.ledger.arrivals.count(false, time.Time{})
	}
	p.mu.Unlock()
	if w != nil {
		w.Close()
	}
}

// nextLook returns the cost of a look, and when the ledger needs the next one.
func (p *Plane) nextLook() (cost time.Duration, wish time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking == nil {
		wish = p.ledger.soon()
	}
	return p.cost, wish
}
