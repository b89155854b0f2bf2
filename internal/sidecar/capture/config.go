package capture

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Config describes the captured traffic; Resolve makes it. The rules are in rules_linux.go.
type Config struct {
	Off          bool // capture nothing: Install then removes the rules of an earlier run
	WholeMachine bool // allow the machine's own network namespace

	RestartWait time.Duration // see served

	anyPort bool // also ports without a listener: the kernel cannot look for one

	InboundPort, OutboundPort uint16   // the pipe's listeners, on all addresses of both families
	UIDs, GIDs                []uint32 // those the proxy runs as, never empty: their connections are never captured
	OwnPorts                  []uint16 // never captured inbound, even if included

	IncludeInbound Some[uint16]
	ExcludeInbound []uint16 // takes precedence

	// Outbound, in this order: connections to ExcludeOutboundPorts or ExcludeRanges are not captured, those to
	// IncludeOutboundPorts are, and of the rest those to IncludeRanges.
	ExcludeOutboundPorts []uint16
	ExcludeRanges        []netip.Prefix
	IncludeOutboundPorts []uint16
	IncludeRanges        Some[netip.Prefix]

	ExcludeInterfaces []string // their packets are never captured, inbound or outbound
	VirtualInterfaces []string // to virtual machines in the pod: packets from them are outbound
}

// Some are all values, or those of a list.
type Some[T any] struct {
	All  bool
	List []T
}

// ownPorts are the ports of Istio's proxy and agent, of which lastcall has some.
var ownPorts = []uint16{istio.AdminPort, istio.OutboundPort, istio.DebugPort, istio.InboundPort, istio.StatusPort,
	istio.HealthPort, istio.DNSPort, istio.MetricsPort}

// family is IPv4 or IPv6.
type family int

const (
	ipv4 family = iota
	ipv6
)

// of keeps the ranges of one family, sorted, without ranges inside others.
func (f family) of(ranges []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range ranges {
		if r.Addr().Is4() == (f == ipv4) {
			out = append(out, r.Masked())
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	last := netip.Prefix{}
	return slices.DeleteFunc(out, func(r netip.Prefix) bool {
		if last.IsValid() && last.Contains(r.Addr()) {
			return true
		}
		last = r
		return false
	})
}
