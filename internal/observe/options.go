package observe

import "net/netip"

// Options select what counts.
type Options struct {
	// Ports are the app's ports; none: every port that has a listener during the watch.
	Ports []uint16
	// IgnorePorts are listening ports that do not count: a sidecar's status and admin ports. In Istio's ambient mesh,
	// ztunnel's 15001, 15006 and 15008 are among them, because the app's own sockets show the clients.
	IgnorePorts []uint16
	// Process selects the listeners of a process and its descendants; 0: of all. Their descriptors must be readable.
	Process int
	// Shared states that the namespace is not the app's own, as on a machine. Connections from the namespace itself then
	// count, since clients may use them; otherwise they are a sidecar's to its app, whose clients count at the sidecar.
	// Refused connections then may concern any process, and are in ForeignResets.
	Shared bool
	// Local reports whether an address is the machine's own, from which the kubelet's probes come; nil: none is.
	Local func(netip.Addr) bool
}
