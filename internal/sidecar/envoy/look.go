package envoy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// lookPatience bounds how long Activity waits for a response of Envoy's that makes it certain.
const lookPatience = 250 * time.Millisecond

// Activity looks at the kernel's table, and reads Envoy's stats if they may have changed and the rate allows. While the
// watch runs too, uncertain connections count as busy and the response arrives as a change; otherwise Activity waits
// for it briefly.
func (p *Plane) Activity(ctx context.Context) (drain.Activity, error) {
	if p.o.Istio {
		return p.istioActivity(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	for {
		p.mu.Lock()
		// A look that has just announced a change is recent enough: otherwise every change would cost two. Once the
		// listeners close, every look counts.
		if p.watch != nil && !p.closing && time.Since(p.lookedAt) < sockdiag.MaxShare*p.cost {
			a := p.last
			p.mu.Unlock()
			return a, nil
		}
		a, err := p.look()
		certain := err != nil || p.watch != nil || p.ledger.settled()
		asking := p.asking
		p.mu.Unlock()
		if certain {
			return a, err
		}
		patience := time.NewTimer(settle)
		select {
		case <-asking: // blocks forever if there is none
		case <-patience.C:
		case <-ctx.Done():
		}
		if patience.Stop(); ctx.Err() != nil {
			return a, nil
		}
	}
}

// look takes one look; mu is held. It always announces a change.
func (p *Plane) look() (drain.Activity, error) {
	now := time.Now()
	ended, lost := p.watch.Ended() // before the look, which must not show them
	p.ledger.ended(ended, lost, now)
	sockets, err := p.sockets(connectionStates)
	if err != nil {
		p.lookedAt = time.Time{}
		sockdiag.Notify(p.changes)
		return drain.Activity{}, err
	}
	p.lookedAt = now
	p.cost = (3*p.cost + time.Since(now)) / 4
	p.ledger.look(sockets, now)
	if p.asking == nil && p.ledger.due(now) {
		p.ask()
	}
	a := p.conclude()
	if a.Busy == 0 && p.child != nil && dying(p.child) {
		p.lookedAt = time.Time{}
		return drain.Activity{}, errDying
	}
	return a, nil
}

var errDying = errors.New("envoy is exiting by itself")

func (p *Plane) sockets(states sockdiag.States) ([]sockdiag.Socket, error) {
	if p.table == nil {
		return nil, nil
	}
	return p.table.Sockets(states, p.layout.ports)
}

// conclude announces a change; mu is held.
func (p *Plane) conclude() drain.Activity {
	now := p.ledger.activity()
	if p.ignoresArrivals {
		now.Arrivals, now.ArrivalsAsOf = p.last.Arrivals, p.last.ArrivalsAsOf
	}
	if now != p.last {
		p.last = now
		sockdiag.Notify(p.changes)
	}
	return p.last
}

// statsTimeout is how long Envoy may take to respond. With 5,000 clusters and every stat it needs 0.2 s on a busy
// machine (measured).
const statsTimeout = 2 * time.Second

// ask requests stats without blocking: an Envoy that hangs delays neither the watch nor the drain. mu is held.
func (p *Plane) ask() {
	answer := make(chan struct{})
	p.asking = answer
	l, c, q := p.layout, p.child, p.ledger.question(time.Now())
	p.work.Go(func() {
		defer close(answer)
		ctx, cancel := context.WithTimeout(p.life, statsTimeout)
		defer cancel()
		before, known := mainThreadTime(c)
		requestedAt := time.Now()
		body, err := p.admin.Stats(ctx, everyFilter, l.usedOnly, q.gaugesOnly)
		took := time.Since(requestedAt)
		cost := took
		if after, ok := mainThreadTime(c); ok && known {
			cost = min(took, after-before) // the rest was waiting for a processor
		}

		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking = nil
		switch {
		case l != p.layout:
			return // requested for the previous layout
		case err == nil:
			err = p.ledger.stats(ParseStats(body), q, requestedAt, took, cost)
		default:
			_ = p.ledger.failed(requestedAt, took, err)
		}
		if bad := err != nil; bad != p.statsWarned && p.life.Err() == nil {
			if p.statsWarned = bad; bad {
				p.log.Warn("Envoy's stats are unavailable; treating every connection as busy", "error", err)
			} else {
				p.log.Info("Envoy's stats are available again")
			}
		}
		p.conclude()
		sockdiag.Notify(p.answered) // the watch may look sooner now
	})
}

// istioActivity is pilot-agent's look.
func (p *Plane) istioActivity(ctx context.Context) (drain.Activity, error) {
	body, err := p.admin.Stats(ctx, istioFilter, true, false)
	if err != nil {
		return drain.Activity{}, fmt.Errorf("unable to get listener stats from Envoy : %w", err)
	}
	active, known := IstioCount(body)
	return drain.Activity{Known: known, Connections: active, Busy: active}, nil
}

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
		p.log.Warn("neither the kernel nor Envoy's stats count new connections; draining until the cap of the quiet time", "hint", "set "+matcherHint)
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
