// Package rehearse reads the settings of a rehearsal on this machine from manifests: the timers, the hook, the
// environment and the probes of a workload's pods. Package cluster, below it, rehearses a workload's rollout in a
// cluster.
package rehearse
