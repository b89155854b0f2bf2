package envoy

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sockdiag"
)

// How often the kernel's table is looked at during a drain. Where it tells of
// the end of sockets by itself, looking serves only to see bytes move.
const (
	lookInterval      = 50 * time.Millisecond
	lookIntervalBlind = 15 * time.Millisecond
)

// watch pushes changes while a drain lasts.
type watch struct {
	cancel    context.CancelFunc
	done      chan struct{}
	destroyed *sockdiag.Watch // nil without the right to be told
}

// begin starts the watch, once.
func (p *Plane) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil || p.o.Istio {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{cancel: cancel, done: make(chan struct{})}
	w.destroyed, _ = sockdiag.WatchDestroyed(p.layout.ports)
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
	interval := lookIntervalBlind
	if destroyed != nil {
		gone, interval = destroyed.Gone(), lookInterval
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-gone:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		before := p.last
		now, err := p.look(ctx)
		p.mu.Unlock()
		if err != nil || now != before {
			select {
			case p.changes <- struct{}{}:
			default:
			}
		}
	}
}
