// Talk is an app for the tests on a node.
//
//	talk app [-on-term exit] [-tls]    HTTP/1.1 and WebSocket on :8080, HTTP/2 on :8082, both by TLS on :8443, gRPC on
//	                                   :9090, lines on :7000
//	talk rest                          does nothing: a pod in whose network clients are
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "talk:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	flags := flag.NewFlagSet("talk", flag.ContinueOnError)
	onTerm := flags.String("on-term", "exit",
		"what the app does at SIGTERM: exit, shutdown, close (its listeners only), or drain by lastcall's library")
	withTLS := flags.Bool("tls", false, "TLS on :8080 instead of :8443")
	if len(args) > 0 && args[0] == "app" {
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return app(ctx, *onTerm, *withTLS)
	}
	<-ctx.Done()
	return nil
}
