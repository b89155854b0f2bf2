// Package pod reads a pod's manifest: which proxy carries its traffic (CarrierOf, MeshOf), lastcall's own parts in it,
// and what its containers do when they end: a preStop hook as a list of steps (ReadHook), a program's reaction to a
// signal (Reacts), which container serves (Serves), and the timers that a server's arguments set (TimersOf). What the
// manifest does not show is Unknown, and never guessed.
package pod
