package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// median of the values that of picks from the samples; of an even number, the lower of the middle two.
func median[S any, V cmp.Ordered](samples []S, of func(S) V) V {
	values := make([]V, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// extremes are the least and the most of the values that of picks from the samples.
func extremes[S any, V cmp.Ordered](samples []S, of func(S) V) (least, most V) {
	values := make([]V, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	return slices.Min(values), slices.Max(values)
}

// printTable writes the medians as Markdown.
func printTable(out io.Writer, subjects []subject, samples map[string][]sample) {
	fmt.Fprintln(out, "| through | requests/s | lowest to highest | p50 | p99 | CPU per request | core used | resident idle | under load |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, s := range subjects {
		rounds := samples[s.name]
		least, most := extremes(rounds, sample.perSecond)
		fmt.Fprintf(out, "| %s | %.0f | %.0f to %.0f | %s | %s |", s.title, median(rounds, sample.perSecond), least, most,
			milliseconds(median(rounds, func(s sample) time.Duration { return s.p50 })),
			milliseconds(median(rounds, func(s sample) time.Duration { return s.p99 })))
		printCost(out, s, rounds)
	}
}

// printCost ends a row with what the subject cost.
func printCost(out io.Writer, s subject, rounds []sample) {
	if s.command == nil {
		fmt.Fprintln(out, " – | – | – | – |")
		return
	}
	fmt.Fprintf(out, " %.1f µs | %.0f %% | %s | %s |\n",
		float64(median(rounds, sample.perRequest).Nanoseconds())/1000, 100*median(rounds, sample.share),
		megabytes(median(rounds, func(s sample) int { return s.idle })),
		megabytes(median(rounds, func(s sample) int { return s.loaded })))
}

// printCaution names the proxies whose numbers say more about the machine than about them.
func printCaution(out io.Writer, subjects []subject, samples map[string][]sample) {
	for _, s := range subjects {
		if share := median(samples[s.name], sample.share); s.command != nil && share < 0.85 {
			fmt.Fprintf(out, "- Caution: %s had only %.0f %% of its core. Something else ran there, or load and app were the bottleneck; CPU per request still holds.\n", s.name, 100*share)
		}
	}
}

// printRatios compares lastcall with each peer that does the same work.
func printRatios(out io.Writer, samples map[string][]sample) {
	for _, pair := range []struct{ ours, theirs, words string }{
		{"lastcall-http", "before-http", "its requests/s before"},
		{"lastcall-tcp", "before-tcp", "its requests/s before"},
		{"lastcall-http", "envoy", "Envoy's requests/s"},
		{"lastcall-http", "haproxy-http", "HAProxy's in HTTP mode"},
		{"lastcall-http", "nginx", "nginx's"},
		{"lastcall-http", "caddy", "Caddy's"},
		{"lastcall-tcp", "haproxy-tcp", "HAProxy's in TCP mode"},
		{"lastcall-http", "relay", "those of the system calls alone"},
		{"relay", "envoy", "Envoy's"},
	} {
		ours, theirs := samples[pair.ours], samples[pair.theirs]
		if len(ours) == 0 || len(theirs) == 0 {
			continue
		}
		fmt.Fprintf(out, "- %s: %.2f times %s, %.2f times as many per second of processor time\n", pair.ours,
			median(ours, sample.perSecond)/median(theirs, sample.perSecond), pair.words,
			float64(median(theirs, sample.perRequest))/float64(median(ours, sample.perRequest)))
	}
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000)
}

func megabytes(bytes int) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }
