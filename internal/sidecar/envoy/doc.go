// Package envoy drains and ends a real Envoy: one that it has started, or one that it finds running. It needs only
// Envoy's admin port and the kernel's table of sockets.
//
// The promise: no connection is cut early because a stat is hidden, a response is late or Envoy's view lags behind the
// kernel's; nothing waits longer than the deadline because Envoy hangs; and no Envoy outlives its agent.
//
// How it detects the end of the drain, without polling Envoy every second:
//
//   - The kernel counts the connections of the relevant listeners, immediately and for almost nothing
//     (internal/sidecar/sockdiag).
//   - Clients that connect and disconnect between two looks are counted as the kernel reports destroyed sockets. Where
//     it does not, and for requests on open connections, Envoy's counters are read before the quiet time has passed;
//     where neither counts, the drain lasts to the quiet time's cap.
//   - Envoy's stats show whether connections are busy. They are read only when bytes have moved since the last time,
//     and at a limited rate: with thousands of clusters one response costs 4 to 30 ms of Envoy's main thread.
//   - A response is trusted when nothing has moved for a moment before and after it; unread or unsent bytes are busy
//     whatever the stats say.
//   - What the stats do not show (hidden by the stats matcher, admin API hanging, no HTTP at all) counts as busy. For
//     connections that the kernel does not show by port (QUIC, unix sockets, another namespace), two equal responses of
//     Envoy's own gauges are needed.
package envoy
