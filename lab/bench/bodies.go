package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/lab/bench/bulk"
)

const (
	bodyConnections = 8
	bodySize        = 10_000_000
)

// way is a direction in which large bodies go.
type way struct {
	title string
	upload,
	endless bool // one body that has no end in sight: a stream, for proxies in TCP mode
}

var ways = []way{
	{title: "10 MB responses"},
	{title: "10 MB uploads", upload: true},
	{title: "a stream down", endless: true},
	{title: "a stream up", upload: true, endless: true},
}

// through reports whether a subject is measured with it.
func (w way) through(s subject) bool {
	return !w.endless || s.command == nil || slices.Contains([]string{"lastcall-tcp", "haproxy-tcp", "haproxy-splice"}, s.name)
}

// bodySample is one round of one subject.
type bodySample struct {
	bulk.Result
	cpu time.Duration
}

func (s bodySample) gigabytesPerSecond() float64 { return float64(s.Bytes) / 1e9 / s.Took.Seconds() }

// perGigabyte is processor time in seconds.
func (s bodySample) perGigabyte() float64 { return s.cpu.Seconds() / (float64(s.Bytes) / 1e9) }

func (s bodySample) share() float64 { return s.cpu.Seconds() / s.Took.Seconds() }

// bodies compares what large bodies cost, and streams in TCP mode.
func (b *bench) bodies(ctx context.Context) error {
	app, err := b.app(ctx, bulkApp, place{})
	if err != nil {
		return err
	}
	defer app.stop()
	for _, w := range ways {
		samples := map[string][]bodySample{}
		subjects := slices.DeleteFunc(b.of("bodies"), func(s subject) bool { return !w.through(s) })
		err := b.inTurns(subjects, func(s subject) (string, error) {
			result, err := b.moveBodies(ctx, s, app, w)
			samples[s.name] = append(samples[s.name], result)
			return fmt.Sprintf("%s: %.2f GB/s", w.title, result.gigabytesPerSecond()), err
		})
		if err != nil {
			return err
		}
		if len(subjects) > 0 {
			b.printBodies(w, subjects, samples)
		}
	}
	return nil
}

func (b *bench) moveBodies(ctx context.Context, s subject, app *process, w way) (bodySample, error) {
	proxy, err := b.proxy(ctx, s, app, place{})
	if err != nil {
		return bodySample{}, err
	}
	defer proxy.stop()
	o := bulk.Options{Address: proxy.address(), Connections: bodyConnections, Size: bodySize, Upload: w.upload, Duration: time.Second / 2}
	if w.endless {
		o.Size = 1 << 50
	}
	if _, err := bulk.Run(ctx, o); err != nil {
		return bodySample{}, fmt.Errorf("warm up: %w", err)
	}
	before, err := proxy.cpu()
	if err != nil {
		return bodySample{}, err
	}
	o.Duration = b.duration
	result, err := bulk.Run(ctx, o)
	if err != nil {
		return bodySample{}, err
	}
	after, err := proxy.cpu()
	return bodySample{Result: result, cpu: after - before}, err
}

func (b *bench) printBodies(w way, subjects []subject, samples map[string][]bodySample) {
	fmt.Printf("%s over HTTP/1.1, %d connections, medians of %d rounds of %s. Each proxy on one core; load and app share another.\n\n",
		strings.ToUpper(w.title[:1])+w.title[1:], bodyConnections, b.rounds, b.duration)
	fmt.Println("| through | GB/s | lowest to highest | CPU seconds per GB | core used |")
	fmt.Println("|---|---:|---:|---:|---:|")
	for _, s := range subjects {
		rounds := samples[s.name]
		least, most := extremes(rounds, bodySample.gigabytesPerSecond)
		fmt.Printf("| %s | %.2f | %.2f to %.2f |", s.title, median(rounds, bodySample.gigabytesPerSecond), least, most)
		if s.command == nil {
			fmt.Println(" – | – |")
		} else {
			fmt.Printf(" %.3f | %.0f %% |\n", median(rounds, bodySample.perGigabyte), 100*median(rounds, bodySample.share))
		}
	}
	fmt.Println()
	for _, peer := range []struct{ name, title string }{{"before-tcp", "its TCP mode before"}, {"haproxy-tcp", "HAProxy's TCP mode"}, {"haproxy-splice", "HAProxy's with splice"}} {
		for _, name := range []string{"lastcall-http", "lastcall-tcp"} {
			ours, theirs := samples[name], samples[peer.name]
			if len(ours) > 0 && len(theirs) > 0 {
				fmt.Printf("- %s: %.2f times the GB/s of %s, %.2f times as much per second of processor time\n", name,
					median(ours, bodySample.gigabytesPerSecond)/median(theirs, bodySample.gigabytesPerSecond), peer.title,
					median(theirs, bodySample.perGigabyte)/median(ours, bodySample.perGigabyte))
			}
		}
	}
	fmt.Println()
}
