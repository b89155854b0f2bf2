// Package termination describes how a pod ends, as data: its containers in the order in which they stop, each with its
// preStop hook, its stop signal and its reaction to that signal; and the mesh and its timers, each with its source. Of
// is a pure function of the pod's manifest. Package course computes from it what happens under given traffic.
package termination
