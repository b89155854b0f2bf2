// Package httpdrain is an http.Server as a drain.DataPlane: for programs that answer
// themselves, such as the webhook and the gateway, to end as lastcall's agent ends a pod.
//
//	p := httpdrain.New(&http.Server{Handler: h, TLSConfig: t}, httpdrain.Options{})
//	go func() { served <- p.ServeTLS(ln) }() // any number of listeners, in clear or with TLS
//	…
//	report, err := drain.Termination{Plane: p, Config: cfg, Signals: signals}.Run(ctx)
//	err = <-served // nil after a drain
//
// What it promises:
//
//   - From Drain on, each HTTP/1.1 answer says Connection: close, and each HTTP/2 connection is
//     sent a GOAWAY that refuses nothing yet (RFC 9113, 6.8: last stream 2^31-1) as soon as
//     it has had a request; one that has had none keeps its first. The GOAWAY that names
//     the last stream follows with CloseIdle. http.Server.Shutdown has only this second
//     one, and what crosses it on the wire is lost to the client.
//   - Whoever has completed a handshake is served: listeners are emptied before they are closed.
//   - No connection is reset that can be ended otherwise: a FIN (with TLS, close_notify before it),
//     and what still comes is read for a second at most.
//   - LastCall answers the requests that have no answer yet in the place of their handlers, and
//     cancels the contexts of all. What handlers write afterwards goes nowhere. An answer that has
//     begun is broken off when its handler returns, so that no half of it looks whole; an event
//     stream ends as package eventstream says.
//   - A hijacked connection is busy until it is closed. At the last call the client of a WebSocket gets a close
//     frame (1001) after the message in progress, whatever library serves it; any other gets a FIN.
//   - A client of HTTP/2 that resets most of its streams at once is sent a GOAWAY with ENHANCE_YOUR_CALM, and its
//     connection ends.
//   - A response does not wait for the rest of its request. One of HTTP/1.1 that begins before the handler has
//     read the request's body to its end says Connection: close, and the connection ends with a FIN after it.
//
// A connection counts as an arrival when its first byte has come, not when it is accepted: the
// health checks of load balancers that only connect (NLB, HAProxy, keepalived) prolong no
// drain.
//
// HTTP/2 in clear (h2c, with prior knowledge) is served where the server's Protocols have it; the upgrade
// of HTTP/1.1 to it is not.
package httpdrain
