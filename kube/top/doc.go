// Package top follows the agents of a workload's pods and shows them in a terminal: phase, time until the last call, busy
// and idle connections, and what delays the exit.
//
//	target.go   which pods: one pod, a workload's, or all injected ones
//	forward.go  a connection to a port of a pod, through the API server
//	board.go    the pods and the latest state of each
//	table.go    the board as text
//	screen.go   the terminal: keys, updates
//
// The promises:
//
//   - It only reads: it lists pods, and reads /live/events of each agent through the API server (pods/portforward), as
//     kubectl port-forward does. No command runs in a pod.
//   - The number of pods, the length of every state and every wait have a limit.
//   - Text of clients, such as a request's path, cannot control the terminal.
package top
