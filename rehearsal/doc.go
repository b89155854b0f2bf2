// Package rehearsal plays the well-known experiment on one machine: a client asks
// for something slow through a gateway and a sidecar, the deployment is
// scaled to 0 at that moment, and what the client gets is compared with what is stated
// of each way of stopping.
//
// Nothing is pretended: app, sidecar and gateway are processes of the real
// binaries on real sockets, and package node's kubelet sends them real signals by
// Kubernetes' rules. Where a strategy is Istio's, the sidecar is lastcall's own agent
// in --compat istio, which ends as pilot-agent with Envoy does.
//
// What is expected is not a list of results: it follows from the timers
// (expect.go), so that a shorter request or a longer grace period is judged
// as rightly as the experiment's own numbers.
//
// The clock is the client's and this process's: a request is answered when the client
// has read the last byte, a pod is gone when wait4 of its last container has
// returned.
package rehearsal
