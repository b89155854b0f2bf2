// Package capture redirects a pod's TCP traffic to the pipe, as Istio's istio-init does: inbound connections to one
// port, the app's outbound connections to another. It uses the kernel's nf_tables directly; no iptables or nft binary
// is needed.
//
// The promise:
//
//   - All or nothing: the rules of IPv4 and IPv6 reach the kernel in one transaction. A second run replaces the first
//     one's rules in one transaction as well; every connection meets one of the two sets.
//   - No loops: connections of the proxy's user or group are never captured, nor those that stay on loopback (the app
//     to itself, the proxy to the app), nor those to lastcall's own ports.
//   - DryRun prints exactly what Install installs: both are made from the same rules.
//
// The rules are in two tables called lastcall, one of family ip, one of ip6; other tables stay unchanged. A single
// table of family inet would be shorter, but kernels have NAT there only since 5.2, while the two work on 4.18, which
// is still on nodes (RHEL 8); and a node without IPv6 simply gets one.
//
// # How it differs from istio-init
//
//   - The proxy's own connections to the pod's address go directly to the app, where Istio captures them again: Envoy
//     selects an endpoint itself, which may be its own pod, and then needs both sides; the pipe only connects to the
//     app's original destination.
//   - An exclusion takes precedence over an inclusion for inbound ports too.
//   - Traffic of virtual interfaces follows the outbound exclusions.
//   - The machine's own network namespace is refused, unless a flag allows it.
//   - DNS is not captured, and there is no TPROXY: both need a proxy that supports them.
//   - IPv6 is always captured where the node has it, not only where the pod's first address is IPv6.
package capture
