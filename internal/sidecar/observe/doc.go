// Package observe finds out what a termination loses, and touches nothing: no proxy, no eBPF, no change of the app.
//
// The kernel reports every destroyed TCP socket of a network namespace with its counters (internal/sidecar/sockdiag). A
// socket of the app that ends with bytes received after the last byte sent is a request without an answer; one whose
// last exchange is complete is an idle connection. The namespace's own counters add the clients that were refused.
//
// What it cannot know is in the result as such, never as a clean end:
//
//   - Half an answer that the client has acknowledged looks like a whole one.
//   - How many requests a connection had in flight that may have several (HTTP/2, also within TLS): Opaque.
//   - A client that sends after the app's close has sent a request, or only TLS's close_notify: Crossed.
//   - Which side sent last, if both did in one tick of the kernel's clock (1 to 10 ms): SameTick.
//   - Which of those that were refused were the kubelet's probes, unless the node shows them: Probes.
//
// From the kernel's report to the result: look (reads) → ledger (follows connections) → judge, protocol (one end) →
// outcome, refused, probes (what it counts) → termination (the result).
//
// docs/observe-how.md explains each rule and the rights that it needs.
package observe
