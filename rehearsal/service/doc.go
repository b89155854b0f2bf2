// Package service rehearses the end of one's own service: its command, its manifest's timers, its requests.
//
// For each strategy two pods run, an old one and its successor. Clients send load to the old pod as through a Service's
// ClusterIP; then the kubelet of package node deletes it, and each client learns of the successor after its own
// propagation delay. Every request is recorded: on which connection, when, and how it ended.
//
// A request counts as lost if its client did not get the response that it got from the undisturbed app: the connection
// was refused, reset or closed, the status or the body differs. A connection that stays with the old pod after its
// endpoint is gone is used again, as the kernel does it for a ClusterIP; a refused connection has no second try.
package service
