// Package peers runs one scene with a real Envoy under each peer's own rules: a
// client sends a slow request, and the pod gets SIGTERM at that moment. It is a
// measurement: what the client received, when the pod had ended, how long it had
// stayed for nothing, and what was lost.
//
// Each peer's logic is a model of its own, in a file of its own, which names the source
// that it follows: what it calls on Envoy's admin port, how often it looks, what it
// counts, when it gives up. What a model leaves out (certificates, control planes,
// logging) takes no part in a pod's end. lastcall is no model: it is the real binary.
//
// Everything else is real too: Envoy, the app, their sockets, and the kubelet's rules
// (package node). The client talks to the Envoy that is ended, without another
// gateway before it, so that nothing hides what happens there.
package peers
