package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// sample is one round of one subject.
type sample struct {
	load
	cpu          time.Duration // used by the proxy during the load
	idle, loaded int           // bytes resident: before the first load, and the most under load
}

// share is how much of its core the proxy has used, 0 to 1. Well below 1, the load's side was the bottleneck.
func (s sample) share() float64 { return s.cpu.Seconds() / s.elapsed.Seconds() }

// perRequest is what a request costs the proxy in processor time; unlike requests/s no bottleneck elsewhere hides it.
func (s sample) perRequest() time.Duration { return s.cpu / time.Duration(s.requests) }

// measure starts the subject, loads it, and ends it.
func (b *bench) measure(ctx context.Context, s subject) (sample, error) {
	dir, err := os.MkdirTemp(b.dir, s.name)
	if err != nil {
		return sample{}, fmt.Errorf("make a folder for %s: %w", s.name, err)
	}
	proxy, err := start(ctx, s, b.programs[s.name], b.proxyCore, place{Dir: dir, Backend: b.app.port})
	if err != nil {
		return sample{}, err
	}
	defer proxy.stop()

	var result sample
	if result.idle, err = proxy.resident(); err != nil {
		return sample{}, err
	}
	// The warm-up fills pools and opens the connections to the app.
	if _, err := wrk(ctx, b.wrk, b.loadCore, proxy.port, b.connections, time.Second); err != nil {
		return sample{}, fmt.Errorf("warm up %s: %w", s.name, err)
	}
	before, err := proxy.cpu()
	if err != nil {
		return sample{}, err
	}
	peak := watchMemory(proxy)
	result.load, err = wrk(ctx, b.wrk, b.loadCore, proxy.port, b.connections, b.duration)
	result.loaded = peak()
	if err != nil {
		return sample{}, fmt.Errorf("load %s: %w", s.name, err)
	}
	after, err := proxy.cpu()
	if err != nil {
		return sample{}, err
	}
	result.cpu = after - before
	return result, nil
}

// watchMemory looks at the process's memory four times a second until the returned function is called, which gives the
// most that was seen.
func watchMemory(p *process) func() int {
	end, peak := make(chan struct{}), make(chan int)
	go func() {
		most := 0
		look := time.NewTicker(250 * time.Millisecond)
		defer look.Stop()
		for {
			select {
			case <-look.C:
				if now, err := p.resident(); err == nil {
					most = max(most, now)
				}
			case <-end:
				peak <- most
				return
			}
		}
	}()
	return func() int {
		close(end)
		return <-peak
	}
}
