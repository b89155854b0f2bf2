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

// loader loads a proxy for so long.
type loader func(ctx context.Context, proxy *process, duration time.Duration) (load, error)

func (b *bench) http1(ctx context.Context) error {
	app, err := b.app(ctx, backend, place{Clients: b.connections})
	if err != nil {
		return err
	}
	defer app.stop()
	subjects, samples := b.of("http1"), map[string][]sample{}
	err = b.inTurns(subjects, func(s subject) (string, error) {
		result, err := b.measure(ctx, s, app, place{Clients: b.connections}, b.wrkLoad)
		samples[s.name] = append(samples[s.name], result)
		return fmt.Sprintf("%8.0f requests/s, p99 %s", result.perSecond(), milliseconds(result.p99)), err
	})
	if err != nil {
		return err
	}
	fmt.Printf("HTTP/1.1, %d keep-alive connections, medians of %d rounds of %s. Each proxy on one core; load and app share another.\n\n",
		b.connections, b.rounds, b.duration)
	printTable(os.Stdout, subjects, samples)
	fmt.Println()
	printRatios(os.Stdout, samples)
	printCaution(os.Stdout, subjects, samples)
	return nil
}

func (b *bench) wrkLoad(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
	return wrk(ctx, b.wrk, proxy.port, b.connections, duration)
}

// measure starts the subject, loads it, and ends it.
func (b *bench) measure(ctx context.Context, s subject, app *process, p place, run loader) (sample, error) {
	proxy, err := b.proxy(ctx, s, app, p)
	if err != nil {
		return sample{}, err
	}
	defer proxy.stop()

	var result sample
	if result.idle, err = proxy.resident(); err != nil {
		return sample{}, err
	}
	// The warm-up fills pools and opens the connections to the app.
	if _, err := run(ctx, proxy, time.Second); err != nil {
		return sample{}, fmt.Errorf("warm up: %w", err)
	}
	before, err := proxy.cpu()
	if err != nil {
		return sample{}, err
	}
	peak := watchMemory(proxy)
	result.load, err = run(ctx, proxy, b.duration)
	result.loaded = peak()
	if err != nil {
		return sample{}, err
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
