// Package httpdrain makes an http.Server a drain.DataPlane: the server ends as a pod with lastcall does.
// Package lastcall, which uses it, needs three lines; this package is for programs that start their
// listeners themselves, or drive the drain.
//
//	p := httpdrain.New(&http.Server{Handler: h, TLSConfig: t}, httpdrain.Options{})
//	go func() { served <- p.ServeTLS(ln) }() // any number of listeners, with or without TLS
//	…
//	report, err := drain.Termination{Plane: p, Config: cfg, Requests: &requests}.Run(ctx)
//	err = <-served // nil after a drain
//
// It promises:
//
//   - From Drain on, every HTTP/1.1 response has Connection: close, and every HTTP/2 connection gets a
//     GOAWAY that refuses nothing (RFC 9113, 6.8: last stream 2^31-1) as soon as it has had a request.
//     The GOAWAY that names the last stream follows after CloseIdle. http.Server.Shutdown sends only the
//     second one, and requests that cross it on the wire fail. Clients that fail their open requests at
//     any GOAWAY get only that one, when they have none.
//   - A client that has completed its handshake is served: the accept queue is emptied before a listener
//     is closed.
//   - Connections end with a FIN (with TLS, after close_notify). Bytes that still arrive are read for up
//     to a second, so that the kernel does not reset the connection.
//   - LastCall responds, in the place of the handlers, to requests without a response, and cancels the
//     contexts of all. Later writes of the handlers are discarded. A response that has begun is truncated
//     in a way that the client can see (if only the end of the connection ends it, as in HTTP/1.0, by a reset,
//     and only then); an event stream ends between two events if its client loses
//     nothing by it.
//   - A hijacked connection is busy until it is closed. At the last call the client of a WebSocket gets a
//     close frame (1001) after the message in progress, whichever library serves it; any other client
//     gets a FIN.
//   - An HTTP/2 client that resets most of its streams at once gets a GOAWAY with ENHANCE_YOUR_CALM.
//   - In a drain, an HTTP/1.1 response does not wait for the rest of its request: it has Connection: close, and
//     a FIN follows it.
//
// A connection counts as an arrival from its first byte, not from its accept: health checks of load
// balancers that only connect (NLB, HAProxy, keepalived) do not prolong a drain.
//
// HTTP/2 without TLS (h2c, with prior knowledge) is served if the server's Protocols include it. The upgrade
// from HTTP/1.1 to it is not.
package httpdrain
