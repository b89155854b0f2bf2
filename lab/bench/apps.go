package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/lastcall-dev/lastcall/lab/bench/bulk"
	"github.com/lastcall-dev/lastcall/lab/bench/stream"
)

// serveApp runs one of the apps that are part of bench, until ctx ends; files are those of TLS.
func serveApp(ctx context.Context, kind, address string, files []string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	switch kind {
	case "hold":
		err = hold(listener)
	case "stream":
		err = stream.Serve(ctx, listener.(*net.TCPListener))
	case "tls":
		err = serveTLS(listener, files)
	default:
		err = bulk.Serve(listener)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Paths of the app that holds requests.
const (
	holdPath    = "/hold"    // answers on request
	heldPath    = "/held"    // how many wait
	releasePath = "/release" // answers all of them, and those that come later at once
)

// hold serves HTTP/1.1, and HTTP/2 without TLS.
func hold(listener net.Listener) error {
	var held atomic.Int64
	released := make(chan struct{})
	routes := http.NewServeMux()
	routes.HandleFunc("GET "+holdPath, func(w http.ResponseWriter, r *http.Request) {
		held.Add(1)
		select {
		case <-released:
			_, _ = io.WriteString(w, smallBody)
		case <-r.Context().Done():
		}
	})
	routes.HandleFunc("GET "+heldPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, held.Load()) })
	routes.HandleFunc("POST "+releasePath, func(http.ResponseWriter, *http.Request) { close(released) })
	routes.HandleFunc("GET /get", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, smallBody) })
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return (&http.Server{Handler: routes, Protocols: protocols}).Serve(listener)
}
