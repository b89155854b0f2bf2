package sockets

import (
	"context"
	"time"
)

// How often the table is looked at: as often as costs no more than 1/lookShare of a
// core, within these bounds. Where the kernel tells of the end of sockets by itself,
// looking serves only to see bytes move and others come.
const (
	lookShare      = 300
	lookMin        = 30 * time.Millisecond
	lookMax        = 100 * time.Millisecond
	lookMinBlind   = 20 * time.Millisecond
	lookMaxBlind   = 50 * time.Millisecond
	lookGapAtLeast = 10 // times what a look costs, however much is told
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
	var looked time.Time
	var cost time.Duration
	for {
		interval := min(max(lookShare*cost, lookMinBlind), lookMaxBlind)
		if gone != nil {
			interval = min(max(lookShare*cost, lookMin), lookMax)
		}
		clock.Reset(time.Until(looked.Add(interval)))
		told := false
		select {
		case _, told = <-gone:
			if !told {
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
		_, _ = p.look(told) // a failure is told as a change; who asks then hears of it
		cost = p.cost
		p.mu.Unlock()
	}
}
