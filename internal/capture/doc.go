// Package capture turns a pod's TCP traffic to the pipe, as Istio's istio-init does: what comes in to one port, what the
// app sends out to another. It speaks to the kernel's nf_tables itself; no iptables or nft binary is needed.
//
// It promises:
//
//   - All or nothing: the rules of IPv4 and IPv6 go to the kernel in one transaction. A second run replaces the first's
//     rules in one as well; at no moment is there a connection that neither set has seen.
//   - Nothing comes round: what the proxy's user or group sends is never captured, nor what stays on loopback (the app
//     that calls itself, the proxy that calls the app), nor what is sent to a port of lastcall's own.
//   - What DryRun prints is what Install installs: both are made from the same rules.
//
// The rules live in two tables called lastcall, one of family ip, one of ip6, and touch no others. A single table of
// family inet would be shorter, but kernels have NAT there only since 5.2, while the two work on 4.18, which is still
// on nodes (RHEL 8); and a node without IPv6 simply gets one.
//
// # How it differs from istio-init
//
//   - The proxy's own connections to the pod's address go straight to the app, where Istio leads them in again: Envoy
//     picks an endpoint itself, which may be its own pod, and must then play both sides; the pipe only goes where the
//     app wanted to go.
//   - An exclusion wins over an inclusion also for inbound ports.
//   - Traffic of virtual interfaces heeds the outbound exclusions.
//   - The machine's own network namespace is refused, unless it is asked for.
//   - Nothing captures DNS, and there is no TPROXY: both need a proxy that has them.
//   - IPv6 is always captured where the node has it, not only where the pod's first address is one.
package capture
