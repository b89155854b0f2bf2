// Package lastcall lets a Go program finish its conversations before it stops: no reset, no 503, no
// truncated body, no time wasted.
//
//	server := &http.Server{Addr: ":8080", Handler: mux}
//	if _, err := lastcall.Serve(context.Background(), server); err != nil {
//		log.Fatal(err)
//	}
//
// At SIGTERM, where http.Server.Shutdown refuses new connections although endpoints and load balancers
// still send them, Serve
//
//   - continues to accept connections for the minimum drain (5 s), and until none has arrived for the
//     quiet time (2 s); the quiet time cannot extend this beyond a third of the grace period;
//   - asks every client to go elsewhere: Connection: close on every HTTP/1.1 response, and a GOAWAY
//     that refuses nothing on every HTTP/2 connection;
//   - closes idle connections in an orderly way, and returns as soon as no request is in flight;
//   - makes the last call 2 s before the kubelet's SIGKILL: requests without a response get a 503, gRPC
//     streams a status, event streams and WebSockets their protocol's end, and a truncated response
//     never looks complete;
//   - logs and returns a report: what was cut, what delayed the exit, how long each phase took.
//
// It always returns before the grace period ends. A second SIGTERM, a second or more later, makes the last call at
// once. SIGINT (Ctrl-C) does not wait for the minimum drain.
//
// # On Kubernetes
//
// The program needs no sidecar, no preStop sleep and no permission:
//
//	spec:
//	  terminationGracePeriodSeconds: 30
//	  containers:
//	  - name: app
//	    env:
//	    - {name: TERMINATION_GRACE_PERIOD_SECONDS, value: "30"} # the same number
//
// Remove a preStop sleep: it uses up the grace period before SIGTERM arrives. A readiness probe on the
// server itself is enough: it succeeds until the listener closes.
//
// These variables are read, and options with the same meaning override them:
//
//	TERMINATION_GRACE_PERIOD_SECONDS  30    the pod's terminationGracePeriodSeconds
//	MINIMUM_DRAIN_DURATION            5s    shortest time for which new connections are accepted
//	LASTCALL_QUIET_TIME               2s    how long no connection or request may have arrived
//	LASTCALL_IDLE_GRACE               2s    after draining, a connection idle for this long is closed
//	LASTCALL_LAST_CALL_MARGIN         2s    how long before SIGKILL the last call is made
//	LASTCALL_DRAINED_BY_HOOK          false SIGTERM follows a drain by lastcall's preStop hook
//	LASTCALL_HOOK_TOKEN                     /prestop is at /prestop/TOKEN
//
// # In a pod with a sidecar
//
// In a pod that lastcall's webhook has injected, SIGTERM reaches the program when the sidecar has
// drained the pod. The injector sets LASTCALL_DRAINED_BY_HOOK, and Serve does not drain a second time:
// when no request has arrived for the quiet time it returns as soon as none is in flight. If requests
// are still arriving, so that the hook cannot have drained the pod, it drains as usual.
//
// Istio's sidecar drains at the same time as the program, not before it: nothing has to be set.
//
// # Status address
//
// With WithStatusAddress, GET /ready answers 200 until the listeners are closed, then 503, and GET /prestop drains and
// returns when no request is in flight: as a preStop hook (httpGet) it starts the drain before SIGTERM. If no SIGTERM
// follows by 5 s after the grace period, the drain is cancelled and the program serves again. The address must not be
// part of a Service: any caller of /prestop drains the pod.
//
// # Handlers and what they need
//
// Draining notifies handlers of streams, WebSockets and long polls. WithBackground runs what must outlive the
// requests, such as pools; WithSideServer serves metrics until the end.
//
// # More than HTTP
//
// A Worker counts the jobs of a program without inbound connections. Package
// github.com/lastcall-dev/lastcall/grpcdrain, a module of its own, has a gRPC server. With drains them
// together with the HTTP server. A new kind of server implements drain.DataPlane, and is tested with
// package planetest; code that drives a drain is tested in virtual time with package draintest.
package lastcall
