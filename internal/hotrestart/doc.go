// Package handover passes a running service on to its successor: a new process
// of the program that now lies at argv[0], started with the same arguments and
// with the listening sockets of the old one (github.com/cloudflare/tableflip).
//
// The promise:
//
//   - The sockets are never closed in between: whoever connects finds a queue
//     that one of the two empties.
//   - There are one or two processes, never three, and at most one that is not
//     ready.
//   - A successor that does not become ready changes nothing: the old process
//     serves on, and Restart says why.
//
// The way of a hot restart:
//
//	old: Restart ──► starts the successor
//	                 new: Begin, Reserve its addresses, start what is needed, Ready
//	old: Restart returns ──► it stops accepting, drains, Bequeath, and exits
//	                 new: AwaitPredecessor returns
//
// tableflip keeps a copy of every listening socket, so that closing a listener
// alone does not refuse anybody: who wants to, calls Stop before.
package hotrestart
