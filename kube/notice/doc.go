// Package notice reads from a cloud's metadata service that the cloud is about to end this machine.
//
//	aws    spot interruption notices and rebalance recommendations, with IMDSv2
//	gcp    preemption of spot and preemptible machines
//	azure  scheduled events that end the machine
//
// It only reads, and ends nothing: the node's own agents (a termination handler, an autoscaler, the kubelet's graceful
// shutdown) evict the pods.
//
// The promises: each request has a deadline, each answer a bound of 64 KiB; redirections are not followed; a service that
// does not answer gets its next request at growing intervals of up to a minute.
package notice
