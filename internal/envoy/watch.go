package envoy

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// How often the kernel's table is looked at during a drain, as a share of what a
// look takes and within bounds: on a machine with 262,144 buckets 0.45 ms, and as
// much again for waking up, so 0.3 % of a core. The kernel tells of the end of
// sockets by itself; looking serves only to see bytes move and others come. Where
// it does not tell, looking is all there is.
const (
	lookShare      = 800
	lookMin        = 50 * time.Millisecond
	lookMax        = 400 * time.Millisecond
	lookMinBlind   = 20 * time.Millisecond
	lookMaxBlind   = 80 * time.Millisecond
	lookGap        = 5 * time.Millisecond
	lookGapAtLeast = 10 // times what a look takes, however much is told
)

// watch pushes changes while a drain lasts.
type watch struct {
	cancel    context.CancelFunc
	done      chan struct{}
	destroyed *sockdiag.Watch // nil where the kernel does not tell
	closing   bool            // StopAccepting has been called; guarded by Plane.mu
}

// begin starts the watch, once.
func (p *Plane) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil || p.o.Istio {
		return
	}
	ctx, cancel := context.WithCancel(p.life)
	w := &watch{cancel: cancel, done: make(chan struct{})}
	if p.table != nil && !p.o.blind {
		w.destroyed, _ = sockdiag.WatchDestroyed(p.layout.ports)
	}
	p.ledger.arrivals.count(w.destroyed != nil, time.Now())
	if p.ledger.cannotCount() {
		p.log.Warn("neither the kernel nor Envoy's stats count new connections: draining to the cap of the quiet time", "hint", "set "+matcherHint)
	}
	p.watch = w
	go func() {
		defer close(w.done)
		p.run(ctx, w.destroyed)
	}()
}

// end stops it.
func (p *Plane) end() {
	p.mu.Lock()
	w := p.watch
	p.watch = nil
	if w != nil {
		p.ledger.arrivals.stopCounting()
	}
	p.mu.Unlock()
	if w == nil {
		return
	}
	w.cancel()
	<-w.done
	if w.destroyed != nil {
		_ = w.destroyed.Close()
	}
}

func (p *Plane) run(ctx context.Context, destroyed *sockdiag.Watch) {
	var gone <-chan struct{}
	if destroyed != nil {
		gone = destroyed.Gone()
	}
	clock := time.NewTimer(0)
	defer clock.Stop()
	looked, cost := time.Time{}, time.Duration(0)
	for {
		clock.Reset(time.Until(p.nextLook(looked, gone == nil)))
		select {
		case <-p.answered:
			continue
		case _, open := <-gone:
			if !open {
				gone = nil // the kernel reports no longer: look for ourselves
				p.mu.Lock()
				p.ledger.arrivals.reports = false
				p.mu.Unlock()
				continue
			}
			// Many ends at once are one look.
			clock.Reset(time.Until(looked.Add(lookGapAtLeast * cost)))
			select {
			case <-clock.C:
			case <-ctx.Done():
				return
			}
		case <-clock.C:
		case <-ctx.Done():
			return
		}
		looked = time.Now()
		p.mu.Lock()
		_, _ = p.look() // a failure is told as a change; who asks then hears of it
		cost = p.cost
		p.mu.Unlock()
	}
}

// nextLook is when to look again.
func (p *Plane) nextLook(looked time.Time, blind bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	interval := min(max(lookShare*p.cost, lookMin), lookMax)
	if blind {
		interval = min(max(lookShare*p.cost, lookMinBlind), lookMaxBlind)
	}
	next := looked.Add(interval)
	if soon, ok := p.ledger.soon(); ok && p.asking == nil && soon.Before(next) {
		next = soon
	}
	if least := looked.Add(lookGap); next.Before(least) {
		return least // not without end when looking fails
	}
	return next
}
