package envoy

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// How often the kernel's table is looked at during a drain: as often as costs no
// more than 1/lookShare of a core, within these bounds. Where the kernel tells of
// the end of sockets by itself, looking serves only to see bytes move and others
// come.
const (
	lookShare      = 300
	lookMin        = 50 * time.Millisecond
	lookMax        = 100 * time.Millisecond
	lookMinBlind   = 15 * time.Millisecond
	lookMaxBlind   = 40 * time.Millisecond
	lookGapAtLeast = 10 // times what a look costs, however much is told
)

// watch pushes changes while a drain lasts.
type watch struct {
	cancel    context.CancelFunc
	done      chan struct{}
	destroyed *sockdiag.Watch // nil where the kernel does not tell
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
	p.mu.Lock()
	cost := p.cost
	p.mu.Unlock()
	clock := time.NewTimer(0)
	defer clock.Stop()
	var looked time.Time
	for {
		interval := min(max(lookShare*cost, lookMinBlind), lookMaxBlind)
		if gone != nil {
			interval = min(max(lookShare*cost, lookMin), lookMax)
		}
		clock.Reset(time.Until(looked.Add(interval)))
		select {
		case _, open := <-gone:
			if !open {
				gone = nil // the kernel tells no more: look for ourselves
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
