// Package node makes this machine a Kubernetes node, for rehearsals: pods are real processes on loopback, and a kubelet
// terminates them by Kubernetes' rules.
//
// Promises:
//
//   - When Close returns, all processes of Start have ended, with the processes in their groups, whatever they do with
//     signals.
//   - If this process is killed, its children are killed (PR_SET_PDEATHSIG).
//   - No other process gets a signal: a process is signalled only between its start and its wait4.
//
// The parts of a node:
//
//	container        a process in a process group of its own
//	its PID 1        the process; when it ends, the rest of its group is killed,
//	                 as the kernel does with a PID namespace
//	pod's network    ports of loopback that belong to this pod alone
//	kubelet          Terminate
package node
