// Package envoy ends a real Envoy: one that it has started, or one that it finds
// running. All it needs is Envoy's admin port and the kernel's table of sockets.
//
// The promise: nothing is ended early because a stat is hidden, an answer late
// or Envoy's view behind the kernel's; nothing waits longer than the deadline
// because Envoy hangs; and no Envoy outlives us.
//
// How it knows when it is over, without asking Envoy every second:
//
//   - The kernel says how many connections there are on the listeners that count,
//     at once and for almost nothing (internal/sockdiag).
//   - Clients that come and go between two looks are counted as the kernel reports
//     destroyed sockets. Where it does not, and for requests on open connections,
//     Envoy's counters are asked before the quiet time is over; where neither counts,
//     the drain lasts to the quiet time's cap.
//   - Whether they are busy, Envoy's stats say. They are asked only when bytes
//     have moved since the last time, and then not so often that it costs: with
//     thousands of clusters one look takes 4 to 30 ms of Envoy's main thread.
//   - An answer is believed when nothing has moved for a moment before and after
//     it; what lies unread or unsent is busy whatever the stats say.
//   - What the stats cannot say (hidden by the stats matcher, admin hanging, no
//     HTTP at all) is taken for busy. What the kernel does not show by its port
//     (QUIC, unix sockets, another namespace) Envoy's own gauges must tell, twice.
package envoy
