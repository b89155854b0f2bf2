// Package hotrestart replaces a running service by its successor: a new process of the program that is now at argv[0],
// started with the same arguments and with the listening sockets of the old one (github.com/cloudflare/tableflip). It
// also notifies systemd (sd_notify(3)): that the service serves, reloads or stops, and, as a watchdog, that it still
// responds.
//
// The promise:
//
//   - The sockets are never closed in between: a new connection enters a queue that one of the two processes empties.
//   - There are one or two processes, never three, and at most one that is not ready.
//   - A successor that does not become ready changes nothing: the old process continues to serve, and Restart returns
//     the reason.
//
// The steps of a hot restart:
//
//	old: Restart ──► starts the successor
//	                 new: Begin, Reserve its addresses, start what is needed, Ready
//	old: Restart returns ──► it stops accepting, drains, Leave, and exits
//	                 new: AwaitPredecessor returns
//
// tableflip keeps a copy of every listening socket, so closing a listener does not refuse connections: call Stop
// before.
//
// Service combines both for an agent.
package hotrestart
