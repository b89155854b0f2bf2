// Package rollout is the other half of a rehearsal: load goes on while the pods
// of a deployment are replaced one after another, and what is lost is counted.
//
// What is fair, so that no number is better or worse than life:
//
//   - Load is open: requests are made at their times whether earlier ones have
//     been answered or not.
//   - Half of them go through the gateway, half straight to the pods, all over
//     kept connections.
//   - Both learn late, each of each change at its own time, which pods there are.
//   - A request is made again only when it is sure that nobody has seen a byte of it: the
//     connection was refused, or a kept one had been closed before. All
//     else is a failure: a reset, an end before or within the answer, any 5xx.
package rollout
