package sockets

import "net/netip"

// ambientProbes are the addresses to which istio-cni translates, for pods in Istio's ambient mesh, those of all
// connections from their node: the kubelet's probes, but also clients with hostNetwork. See istio-cni's
// HOST_PROBE_SNAT_IP and HOST_PROBE_SNAT_IPV6.
var ambientProbes = [...]netip.Addr{
	netip.MustParseAddr("169.254.7.127"),
	netip.MustParseAddr("fd16:9254:7127:1337:ffff:ffff:ffff:ffff"),
}

// isAmbientProbe reports whether a connection comes from the node itself. The kubelet continues its readiness probes
// until the app ends, so they say nothing about clients that still have to notice the end of the pod: they do not
// extend the quiet time. Requests in flight from there are busy like all others, because not all of them are probes.
func isAmbientProbe(from netip.Addr) bool {
	return from == ambientProbes[0] || from == ambientProbes[1]
}
