package sockets

import (
	"context"
	"time"
)

// How often the table is looked at, as a share of what a look takes and within bounds:
// on a machine with 262,144 buckets 0.45 ms, and as much again for waking up, so 0.4 %
// of a core. The kernel says how long ago bytes moved, and tells of the end of sockets
// by itself; looking late costs time, and hides only who spoke last when both did in
// one jiffy. Where the kernel does not tell, looking is all there is.
const (
	lookShare      = 600
	lookMin        = 30 * time.Millisecond
	lookMax        = 250 * time.Millisecond
	lookMinBlind   = 20 * time.Millisecond
	lookMaxBlind   = 80 * time.Millisecond
	lookGap        = 5 * time.Millisecond
	lookGapAtLeast = 10 // times what a look takes, however much is told
)

// watch pushes changes while a drain lasts.
type watch struct {
	cancel context.CancelFunc
	done   chan struct{}
	told   destroyed // nil where the kernel does not tell
}

// begin starts the watch, once.
func (p *Plane) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{cancel: cancel, done: make(chan struct{})}
	var gone <-chan struct{}
	if told, err := p.kernel.told(p.o.Ports); err == nil {
		w.told, gone = told, told.Gone()
	}
	p.ledger.watching(gone != nil, time.Now())
	if gone == nil {
		p.o.Log.Warn("the kernel does not report closed connections here: short ones may be missed, so the quiet time lasts to its cap")
	}
	p.watch = w
	go func() {
		defer close(w.done)
		p.run(ctx, gone)
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
	if w.told != nil {
		_ = w.told.Close()
	}
}

func (p *Plane) run(ctx context.Context, gone <-chan struct{}) {
	clock := time.NewTimer(0)
	defer clock.Stop()
	var looked, next time.Time
	var cost time.Duration
	for {
		wake := looked.Add(min(max(lookShare*cost, lookMinBlind), lookMaxBlind))
		if gone != nil {
			wake = looked.Add(min(max(lookShare*cost, lookMin), lookMax))
		}
		soonest := looked.Add(max(lookGap, lookGapAtLeast*cost))
		if !next.IsZero() && next.Before(wake) {
			wake = next
		}
		if wake.Before(soonest) {
			wake = soonest
		}
		clock.Reset(time.Until(wake))
		select {
		case _, open := <-gone:
			if !open {
				gone = nil // the kernel reports no longer: look for ourselves
				p.mu.Lock()
				p.ledger.reports = false
				p.mu.Unlock()
				continue
			}
			// Many ends at once are one look.
			clock.Reset(time.Until(soonest))
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
		cost, next = p.cost, p.ledger.next()
		p.mu.Unlock()
	}
}
