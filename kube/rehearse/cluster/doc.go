// Package cluster rehearses a rollout of one's own service in a cluster: clients on this machine send load to its URL
// while the workload's pods are replaced, and the API server reports how the pods end.
//
// A client cannot see which pod answers it behind a Service. A loss is therefore attributed to the pods that were
// ending at that time, and its phase is that of the one whose SIGTERM or end was the closest.
package cluster
