// Package pod reads what a pod's containers do when they end, from the pod's manifest alone: a preStop hook as a list
// of steps (ReadHook), a program's reaction to a signal (Reacts), which container serves (Serves), and the timers
// that a server's
// arguments set (TimersOf). What the manifest does not show is Unknown, and never guessed.
package pod
