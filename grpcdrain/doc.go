// Package grpcdrain makes a gRPC server a drain.DataPlane: it ends as a pod with lastcall does, without a failed call.
//
//	plane := grpcdrain.New(func(opts ...grpc.ServerOption) *grpc.Server {
//		s := grpc.NewServer(append(opts, grpc.Creds(creds))...)
//		pb.RegisterGreeterServer(s, greeter)
//		return s
//	}, grpcdrain.Options{})
//	go func() { served <- plane.Serve(ln) }()
//	report, err := lastcall.Run(ctx, plane) // until SIGTERM and the end of the drain
//
// Together with an HTTP server: lastcall.Serve(ctx, httpServer, lastcall.With(plane)).
//
// It promises:
//
//   - During the minimum drain new connections are accepted and their calls served. The listener closes
//     when no call has arrived for the quiet time, and its accept queue is served first.
//   - Every client gets a GOAWAY that refuses nothing (last stream 2^31-1), and the one that names the last
//     stream after the client has acknowledged the first. Connections that are open when the drain
//     begins get it at once, those that arrive later within a second. An idle connection is then closed.
//   - A connection with a call in flight is busy. Health checks (grpc.health.v1) are not: neither Check
//     nor an open Watch delays the end.
//   - Handlers learn of the drain from Draining(ctx), so that a long stream can end between two messages.
//   - Calls that are open at the last call end with UNAVAILABLE, which clients may retry, whatever their
//     handlers do; the contexts of the handlers end with the cause ErrLastCall.
//   - Handlers that ignore their contexts do not delay the end by more than half a second.
//
// # What GracefulStop lacks
//
// grpc.Server.GracefulStop closes the listeners first. In Kubernetes, clients and kube-proxy learn of a
// pod's end after the pod does, so connections are refused during that time. It then waits without a
// deadline for every stream, and before it sends a single GOAWAY it waits for every connection that is still
// in its handshake, up to grpc.ConnectionTimeout (2 minutes). Stop, the only alternative, closes
// connections under the calls in flight. Neither can be undone, and handlers are not notified.
//
// # Why New takes a function
//
// A grpc.Server sends GOAWAY only in GracefulStop, after which it accepts nothing. A Plane therefore
// serves the connections of each time with a server of its own: one until the drain, then one for each
// second in which clients still connect. It makes the first two in New, so that a function that cannot
// be called twice fails when the program starts. What the servers share (service
// implementations, a health.Server, registered metrics) is made outside the function.
//
// # Health service
//
// With Options.Health, the health service says NOT_SERVING once the listeners close. Clients and load balancers that
// check health stop sending at once, so an earlier NOT_SERVING takes away a server that still serves: a client whose
// only known address it is fails its calls, and kube-proxy no longer uses the pod as a last resort. Set
// Options.NotServingAtDrain where health checks are the only way by which the load balancer learns of the end; the
// minimum drain must then be longer than the load balancer's interval times its threshold.
//
// # grpc.Server.ServeHTTP
//
// A grpc.Server that is the Handler of an http.Server needs no Plane of this package: the http.Server owns
// the connections, and package httpdrain drains it.
package grpcdrain
