// Package sideport has what the small HTTP servers beside the traffic have in
// common: the status port, the admin API, the gateway's and the webhook's probes
// and metrics.
//
// The promises:
//
//   - Whatever peers do, a server takes a bounded amount of memory: it has a
//     bounded number of connections and of scrapes, short heads, and no answer
//     without a deadline.
//   - A peer that takes more than its share displaces itself: when there is no
//     room, the oldest connection of the address with the most of them is ended. So
//     another peer's probe or hook gets in, and one that waits (Hold) stays.
//   - What is meant for the machine itself is not at a web page's disposal (Local).
package sideport
