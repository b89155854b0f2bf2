// Package observe reports, for each pod of a node that terminates, what the termination cost its clients: requests
// without an answer, connections that were refused, and the time after which new connections still arrived.
//
// It changes nothing in a pod and touches no packet. The API server names the pods of the node and the moment at which
// one begins to terminate; the kernel's socket table of the pod's network namespace (internal/sidecar/observe) shows
// the rest.
//
// The promises:
//
//   - A pod that does not terminate costs two file descriptors and no work.
//   - Each termination is reported once: as clean, lost, killed, or unknown. A termination that could not be observed
//     is counted as unknown with its reason, never as clean.
//   - Nothing waits without a deadline: not for the API server, a process, a network namespace or the kernel.
//   - Memory is bounded: pods, terminations at the same time, metric series and waiting Events have limits.
package observe
