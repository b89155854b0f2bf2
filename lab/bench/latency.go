package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/open"
)

// latencySample is one round of one subject.
type latencySample struct {
	rate     float64 // half of the most that it did in this round, requests/s
	p50, p99 time.Duration
	ours     time.Duration // lastcall's p99 at the same rate
}

// latency compares how long requests take at half of the most that each proxy can do, counted from when they were due.
func (b *bench) latency(ctx context.Context) error {
	app, err := b.app(ctx, backend, place{})
	if err != nil {
		return err
	}
	defer app.stop()
	ours := subjects[slices.IndexFunc(subjects, func(s subject) bool { return s.name == "lastcall-http" })]
	among, samples := b.of("latency"), map[string][]latencySample{}
	compared := slices.ContainsFunc(among, func(s subject) bool { return s.name == ours.name })
	err = b.inTurns(among, func(s subject) (string, error) {
		proxy, err := b.proxy(ctx, s, app, place{})
		if err != nil {
			return "", err
		}
		defer proxy.stop()
		most, err := b.wrkLoad(ctx, proxy, b.duration)
		if err != nil {
			return "", err
		}
		at := latencySample{rate: most.perSecond() / 2}
		result, err := b.openLoad(ctx, proxy, at.rate)
		if err != nil {
			return "", err
		}
		at.p50, at.p99 = result.Percentile(50), result.Percentile(99)
		if at.ours = at.p99; compared && s.command != nil && s.name != ours.name {
			// The other one is gone first: both would share a core.
			proxy.stop()
			if at.ours, err = b.ourLatency(ctx, ours, app, at.rate); err != nil {
				return "", err
			}
		}
		samples[s.name] = append(samples[s.name], at)
		return fmt.Sprintf("p99 %s at %.0f requests/s", milliseconds(at.p99), at.rate), nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("HTTP/1.1, %d keep-alive connections, requests evenly spaced at half the rate at which each one answers them when they come without a pause, "+
		"counted from when they were due. Medians of %d rounds of %s.\n\n", b.connections, b.rounds, b.duration)
	fmt.Println("| through | requests/s | p50 | p99 | lowest to highest | lastcall's p99 at that rate |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	for _, s := range among {
		rounds, theirs := samples[s.name], "–"
		if compared && s.command != nil {
			theirs = milliseconds(median(rounds, func(l latencySample) time.Duration { return l.ours }))
		}
		p99 := func(l latencySample) time.Duration { return l.p99 }
		least, most := extremes(rounds, p99)
		fmt.Printf("| %s | %.0f | %s | %s | %s to %s | %s |\n", s.title, median(rounds, func(l latencySample) float64 { return l.rate }),
			milliseconds(median(rounds, func(l latencySample) time.Duration { return l.p50 })),
			milliseconds(median(rounds, p99)), milliseconds(least), milliseconds(most), theirs)
	}
	return nil
}

func (b *bench) ourLatency(ctx context.Context, ours subject, app *process, rate float64) (time.Duration, error) {
	proxy, err := b.proxy(ctx, ours, app, place{})
	if err != nil {
		return 0, err
	}
	defer proxy.stop()
	if _, err := b.wrkLoad(ctx, proxy, time.Second); err != nil {
		return 0, fmt.Errorf("warm lastcall up: %w", err)
	}
	result, err := b.openLoad(ctx, proxy, rate)
	return result.Percentile(99), err
}

func (b *bench) openLoad(ctx context.Context, proxy *process, rate float64) (open.Result, error) {
	return open.Run(ctx, open.Options{Port: proxy.port, Path: "/get", Connections: b.connections, Rate: rate, Duration: b.duration})
}
