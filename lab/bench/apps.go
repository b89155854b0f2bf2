package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/websocket"
)

// Paths of the app.
const (
	holdPath    = "/hold"    // answers on request
	heldPath    = "/held"    // how many wait
	releasePath = "/release" // answers all of them, and those that come later at once
	eventsPath  = "/sse/"    // an event stream, with a token each tokenEvery
	socketPath  = "/ws/"     // the same as a WebSocket
)

// serveApp runs the app that is part of bench, until ctx ends: HTTP/1.1, and HTTP/2 without TLS.
func serveApp(ctx context.Context, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	// A proxy may send all clients' requests on one connection.
	settings := &http.HTTP2Config{MaxConcurrentStreams: 1 << 20}
	server := &http.Server{Handler: appRoutes(), Protocols: protocols, HTTP2: settings}
	err = server.Serve(listener)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func appRoutes() http.Handler {
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
	routes.HandleFunc("GET "+heldPath, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strconv.FormatInt(held.Load(), 10))
	})
	routes.HandleFunc("POST "+releasePath, func(http.ResponseWriter, *http.Request) { close(released) })
	routes.HandleFunc("GET /get", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, smallBody) })
	routes.HandleFunc("GET "+eventsPath, sendEvents)
	// Not a Handler, which refuses clients without an Origin.
	routes.Handle("GET "+socketPath, websocket.Server{Handler: sendMessages})
	return routes
}
