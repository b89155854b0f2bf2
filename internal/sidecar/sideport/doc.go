// Package sideport has what the small HTTP servers next to the traffic have in common: the status port, the admin API,
// the probes and metrics of the gateway and the webhook.
//
// The promises:
//
//   - Whatever peers do, a server takes a bounded amount of memory: it limits connections, concurrent scrapes and
//     header sizes, and every response has a deadline.
//   - A peer that takes more than its share displaces itself: at the limit, the oldest connection of the address with
//     the most connections is ended. Another peer's probe or hook is served.
//   - Requests that wait (Hold, HoldHook) have connections of their own: they shut out neither each other nor probes.
//   - Endpoints for the machine itself are closed to web pages (Local).
package sideport
