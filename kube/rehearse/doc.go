// Package rehearse reads from manifests what a rehearsal on this machine needs: the timers, the hook, the environment
// and the probes of a workload's pods. Package cluster, below it, rehearses a workload's rollout in a cluster.
package rehearse
