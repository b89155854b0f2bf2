// Package rollout counts the requests that are lost while the pods of a deployment are replaced one after another under load.
//
// The measurement is fair:
//
//   - Load is open: requests are sent at their times, whether earlier ones have been answered or not.
//   - Half of them go through the gateway, half directly to the pods, all over kept-alive connections.
//   - Gateway and clients receive each change of the endpoints late, each after its own delay.
//   - A request is retried only if certainly no pod has received a byte of it: the connection was refused, or a kept-alive
//     one had been closed before. Everything else is a failure: a reset, a connection that ends before or within the
//     response, any 5xx.
package rollout
