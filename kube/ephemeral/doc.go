// Package ephemeral observes how the pods of a workload end, without an installation: it adds an ephemeral container
// with lastcall to each of them, which watches the kernel's table of sockets from within the pod's network namespace
// (lastcall observe --pod), and reads its log.
//
// The container has no capability and no root, so that it starts in namespaces with the pod security level
// "restricted". It touches no packet and no process. Kubernetes cannot remove an ephemeral container: it ends with its
// pod, or by itself after Options.Limit.
//
// The kubelet sends SIGTERM to all containers of a pod at once, and the observer, which is one of them, takes it as the
// beginning of the termination. At the end of the grace period it is killed like the others; a moment before, it writes
// how many requests are in flight.
package ephemeral
