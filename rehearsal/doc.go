// Package rehearsal runs the published experiment on one machine: a client sends a slow request through a gateway and a
// sidecar, the deployment is scaled to 0 at that moment, and the client's result is compared with what is expected of
// each way to stop a pod.
//
// App and sidecar are processes of the real binaries on real sockets, and package node's kubelet sends them real
// signals by Kubernetes' rules. The gateway runs in this process, or is a real Envoy. Where a strategy is Istio's, the
// sidecar is lastcall's agent in --compat istio, which ends as pilot-agent with Envoy does.
//
// What is expected is computed from the timers (expect.go): a shorter request or a longer grace period is judged as
// correctly as the experiment's own.
//
// Times are measured by the client and this process: a request is answered when the client has read the last byte, and
// a pod is gone when wait4 has returned for its last container.
package rehearsal
