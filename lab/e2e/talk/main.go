// Talk is an app and its clients, for the tests in a mesh (lab/e2e/mesh): the same program in a pod and outside.
//
//	talk app [-on-term exit] [-tls]              HTTP/1.1 and WebSocket on :8080, HTTP/2 on :8082, both by TLS on :8443,
//	                                             gRPC on :9090, lines on :7000
//	talk rest                                    does nothing: a pod in which clients are started by kubectl exec
//	talk ask -kind K -target HOST [-hold 10s]    one conversation of a kind, which lasts a time; the result as JSON
//	talk idle -target HOST [-count 5]            connections that stay open after a request, until standard input ends
//	talk crowd -target HOST [-count 5 …]         idle and busy clients, late ones when standard input ends; losses, JSON
//	talk load -url URL -rate 40                  requests of 20 ms to 8 s until standard input ends; the result as JSON
//
// A client reports its start on a line of its own ("begun"), and the test continues.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const usage = "usage: talk app | rest | ask | idle | crowd | load [FLAGS]"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "talk:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("talk "+args[0], flag.ContinueOnError)
	onTerm := flags.String("on-term", "exit",
		"what the app does at SIGTERM: exit, shutdown, close (its listeners only), or drain by lastcall's library")
	withTLS := flags.Bool("tls", false, "the app terminates TLS on :8080")
	kind := flags.String("kind", "http1", "http1, http2, grpc or websocket")
	target := flags.String("target", "", "`host` with the app")
	hold := flags.Duration("hold", 10*time.Second, "how long the conversation takes")
	count := flags.Int("count", 5, "`number` of idle connections")
	busy := flags.Int("busy", 8, "`number` of clients with a request that lasts -hold")
	late := flags.Int("late", 0, "`number` of clients that come when standard input has ended")
	url := flags.String("url", "", "`URL` of the app, without a path")
	rate := flags.Int("rate", 40, "requests per `second`")
	host := flags.String("host", "", "`name` in the Host field, if not the URL's")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "app":
		return app(ctx, *onTerm, *withTLS)
	case "rest":
		<-ctx.Done()
		return nil
	case "ask":
		talk := kinds[*kind]
		if talk == nil {
			return fmt.Errorf("-kind %s: must be http1, http2, grpc or websocket", *kind)
		}
		return report(ask(ctx, talk, *target, *hold))
	case "idle":
		return idle(untilInputEnds(ctx), *target, *count)
	case "crowd":
		r, err := crowd(untilInputEnds(ctx), *target, *count, *busy, *late, *hold)
		if err != nil {
			return err
		}
		return report(r)
	case "load":
		return report(load(untilInputEnds(ctx), *url, *host, *rate))
	}
	return errors.New(usage)
}

// untilInputEnds lets a test end the program through kubectl exec, which forwards no signals.
func untilInputEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func report(result any) error { return json.NewEncoder(os.Stdout).Encode(result) }
