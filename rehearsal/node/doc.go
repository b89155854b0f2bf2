// Package node is one machine as a Kubernetes node, for rehearsals: pods of
// real processes on loopback, and a kubelet that ends them by Kubernetes' rules.
//
// Promises:
//
//   - What Start has started is gone when Close returns, whatever it did with
//     signals, and with it whatever it started itself and left in its process group.
//   - If this process is killed, its children are (PR_SET_PDEATHSIG).
//   - Nothing else on the machine is ever signalled: a process is signalled
//     only between its start and the moment it is reaped.
//
// What stands for what:
//
//	container        a process in a process group of its own
//	its PID 1        the process; when it ends, the rest of its group is killed,
//	                 as the kernel does with a PID namespace
//	pod's network    ports of loopback that belong to this pod alone
//	kubelet          Terminate
package node
