// Package peers measures how other tools end a real Envoy: a client sends a slow request, and the pod gets SIGTERM at that
// moment. The result is what the client got, when the pod was gone, how long it was idle before, and which requests were
// lost.
//
// Each peer's logic is a model in its own file, which names the source that it follows: what it calls on Envoy's admin port,
// how often it polls, what it counts, when it gives up. Certificates, control planes and logging, which a model omits, play no
// part in a pod's end. lastcall is no model but the real binary.
//
// Everything else is real as well: Envoy, the app, their sockets, and the kubelet's rules (package node). The client connects
// directly to the Envoy that is ended: no gateway hides what happens.
package peers
