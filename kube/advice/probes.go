package advice

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Know adds to the options of a watch what the pod's spec shows: the ports of its proxy, the kubelet's probes, and what
// clients speak at the ports, by their probes and by the names of the ports as Istio reads them.
func Know(o *observe.Options, spec *corev1.PodSpec, proxy string) {
	o.IgnorePorts = pod.StatusPorts(proxy)
	o.ProxyPorts, o.Attempts = pod.ProxyPorts(proxy)
	o.Protocols = map[uint16]observe.Protocol{443: observe.Opaque, 8443: observe.Opaque}
	for _, c := range pod.Containers(spec) {
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
			port, protocol := target(c, probe)
			if port == 0 {
				continue
			}
			period := time.Duration(max(probe.PeriodSeconds, 1)) * time.Second
			o.Probes = append(o.Probes, observe.Probe{Port: port, Period: period})
			o.Protocols[port] = protocol
		}
		for _, p := range c.Ports {
			if protocol, ok := named(p.Name); ok {
				o.Protocols[uint16(p.ContainerPort)] = protocol
			}
		}
	}
}

// target is the port to which a probe connects, and its protocol; 0 for one that does not connect to the pod.
func target(c *corev1.Container, p *corev1.Probe) (uint16, observe.Protocol) {
	switch {
	case p == nil:
	case p.HTTPGet != nil && p.HTTPGet.Host == "":
		if p.HTTPGet.Scheme == corev1.URISchemeHTTPS {
			return pod.PortOf(c, p.HTTPGet.Port), observe.Opaque
		}
		return pod.PortOf(c, p.HTTPGet.Port), observe.HTTP1
	case p.TCPSocket != nil && p.TCPSocket.Host == "":
		return pod.PortOf(c, p.TCPSocket.Port), observe.Unspecified
	case p.GRPC != nil:
		return uint16(p.GRPC.Port), observe.Opaque
	}
	return 0, observe.Unspecified
}

// named is the protocol that a port's name states.
func named(name string) (observe.Protocol, bool) {
	switch word := meshconfig.PortProtocol(name); {
	case word == "":
		return observe.Unspecified, false
	case meshconfig.IsHTTPSPort(word), meshconfig.IsOpaquePort(word):
		return observe.Opaque, true
	}
	return observe.HTTP1, true
}

// Doubt adds a reason why the termination was not observed, or not all of it.
func (t *Termination) Doubt(reason string) {
	if !slices.Contains(t.Unknown, reason) {
		t.Unknown = append(t.Unknown, reason)
	}
}
