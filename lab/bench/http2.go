package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// What the load of HTTP/2 is.
const http2Connections, http2Streams = 16, 32

// http2 compares proxies that speak HTTP/2 with the clients, and with the app where they can.
func (b *bench) http2(ctx context.Context) error {
	app2, err := b.app(ctx, backend2, place{HTTP2: true})
	if err != nil {
		return err
	}
	defer app2.stop()
	app1, err := b.app(ctx, backend, place{})
	if err != nil {
		return err
	}
	defer app1.stop()
	subjects, samples := b.of("http2"), map[string][]sample{}
	err = b.inTurns(subjects, func(s subject) (string, error) {
		app := app2
		if !speaksHTTP2(s) {
			app = app1
		}
		result, err := b.measure(ctx, s, app, place{HTTP2: true}, func(ctx context.Context, proxy *process, duration time.Duration) (load, error) {
			return h2load(ctx, b.h2load, proxy.url(), duration)
		})
		samples[s.name] = append(samples[s.name], result)
		return fmt.Sprintf("%8.0f requests/s", result.perSecond()), err
	})
	if err != nil {
		return err
	}
	fmt.Printf("HTTP/2 without TLS, by prior knowledge, %d connections of %d streams (h2load), medians of %d rounds of %s. The app is nghttpd; "+
		"nginx's is nginx. Each proxy on one core; load and app share another.\n\n", http2Connections, http2Streams, b.rounds, b.duration)
	printHTTP2(os.Stdout, subjects, samples)
	fmt.Println()
	printRatios(os.Stdout, samples)
	printCaution(os.Stdout, subjects, samples)
	return nil
}

// speaksHTTP2 reports whether a subject speaks it with the app too.
func speaksHTTP2(s subject) bool { return s.peer != "nginx" }

func printHTTP2(out io.Writer, subjects []subject, samples map[string][]sample) {
	fmt.Fprintln(out, "| through | to the app | requests/s | lowest to highest | mean | CPU per request | core used | resident idle | under load |")
	fmt.Fprintln(out, "|---|---|---:|---:|---:|---:|---:|---:|---:|")
	for _, s := range subjects {
		rounds, speaks := samples[s.name], "HTTP/2"
		if !speaksHTTP2(s) {
			speaks = "HTTP/1.1"
		}
		least, most := extremes(rounds, sample.perSecond)
		fmt.Fprintf(out, "| %s | %s | %.0f | %.0f to %.0f | %s |", s.title, speaks, median(rounds, sample.perSecond), least, most,
			milliseconds(median(rounds, func(s sample) time.Duration { return s.mean })))
		printCost(out, s, rounds)
	}
}
