package ingress

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/gateway"
)

// condition of an endpoint, the best first.
type condition int

const (
	isReady condition = iota
	isTerminating
	isNotReady
)

// sighting is an endpoint in EndpointSlices. While it is moved between slices, it is in both, and counts once.
type sighting struct {
	ready, serving, terminating bool
}

// conditionOf returns the condition by the API's rules.
func conditionOf(s sighting) condition {
	switch {
	case s.ready && !s.terminating:
		return isReady
	case s.terminating && s.serving:
		return isTerminating
	}
	return isNotReady
}

// place identifies an endpoint. The pod distinguishes it from a later one with the same address.
type place struct {
	address string // host:port
	family  corev1.IPFamily
	pod     types.UID
}

// resolve returns the addresses for a port (by its name in the Service, which slices use, too), and the counts. The same
// endpoints are returned in the same order, whatever the order of the slices.
func resolve(eps []*discoveryv1.EndpointSlice, port string, families []corev1.IPFamily) ([]string, gateway.EndpointStates) {
	seen := make(map[place]sighting)
	for _, s := range eps {
		var family corev1.IPFamily
		switch s.AddressType {
		case discoveryv1.AddressTypeIPv4:
			family = corev1.IPv4Protocol
		case discoveryv1.AddressTypeIPv6:
			family = corev1.IPv6Protocol
		default: // FQDN: the API defines no meaning, and kube-proxy ignores it, too
			continue
		}
		for _, p := range s.Ports {
			if deref(p.Name, "") != port || p.Port == nil || *p.Port <= 0 || deref(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
				continue
			}
			collect(seen, s.Endpoints, family, strconv.Itoa(int(*p.Port)))
		}
	}

	// The best condition of an address counts.
	type found struct {
		family corev1.IPFamily
		is     condition
	}
	best := make(map[string]found, len(seen))
	for at, s := range seen {
		is := conditionOf(s)
		if b, ok := best[at.address]; !ok || is < b.is {
			best[at.address] = found{at.family, is}
		}
	}
	primary := corev1.IPv4Protocol
	if len(families) > 0 {
		primary = families[0]
	}
	var lists [2][2][]string // by condition, then by family: primary, other
	var count [2][3]int
	for address, f := range best {
		other := 0
		if f.family != primary {
			other = 1
		}
		count[other][f.is]++
		if f.is < isNotReady {
			lists[f.is][other] = append(lists[f.is][other], address)
		}
	}
	// In a dual-stack Service every pod has two addresses, and counts once.
	total := func(is condition) int { return max(count[0][is], count[1][is]) }
	states := gateway.EndpointStates{Ready: total(isReady), Terminating: total(isTerminating), NotReady: total(isNotReady)}
	for _, list := range [][]string{lists[isReady][0], lists[isReady][1], lists[isTerminating][0], lists[isTerminating][1]} {
		if len(list) > 0 {
			slices.Sort(list)
			return list, states
		}
	}
	return nil, states
}

func collect(seen map[place]sighting, all []discoveryv1.Endpoint, family corev1.IPFamily, port string) {
	for i := range all {
		e := &all[i]
		if len(e.Addresses) == 0 {
			continue
		}
		at := place{family: family, address: net.JoinHostPort(e.Addresses[0], port)} // the API defines all of them as equivalent
		if e.TargetRef != nil {
			at.pod = e.TargetRef.UID
		}
		now := sighting{
			ready:       deref(e.Conditions.Ready, true),
			serving:     deref(e.Conditions.Serving, true),
			terminating: deref(e.Conditions.Terminating, false),
		}
		// One of two slices is older. Termination is final, so a slice that states it is the newer one.
		// Otherwise the endpoint is ready if one of them states it.
		if before, twice := seen[at]; twice {
			switch {
			case before.terminating && !now.terminating:
				now = before
			case before.terminating == now.terminating:
				now.ready, now.serving = now.ready || before.ready, now.serving || before.serving
			}
		}
		seen[at] = now
	}
}

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// portOf returns the Service's port that an Ingress or --service names.
func portOf(s *corev1.Service, want Port) (corev1.ServicePort, bool) {
	for _, p := range s.Spec.Ports {
		if cmp.Or(p.Protocol, corev1.ProtocolTCP) != corev1.ProtocolTCP {
			continue
		}
		if want.Name != "" && p.Name == want.Name || want.Name == "" && p.Port == want.Number {
			return p, true
		}
	}
	return corev1.ServicePort{}, false
}

// protocolOf returns the protocol of a port: from its appProtocol, by Kubernetes' name (KEP-3726) or Istio's, or from the
// port's name, as Istio does (grpc, http2, with or without -suffix).
func protocolOf(p corev1.ServicePort) gateway.Protocol {
	is := strings.ToLower(deref(p.AppProtocol, ""))
	if is == "" {
		is, _, _ = strings.Cut(p.Name, "-")
		if p.Name == "grpc-web" || strings.HasPrefix(p.Name, "grpc-web-") { // over HTTP/1.1
			return gateway.HTTP1
		}
	}
	switch is {
	case "kubernetes.io/h2c", "h2c", "http2", "grpc":
		return gateway.H2C
	}
	return gateway.HTTP1
}
