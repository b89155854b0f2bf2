package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Names of MeshOf that other packages compare with.
const (
	MeshIstio   = "Istio"
	MeshAmbient = "Istio ambient"
	MeshLinkerd = "linkerd"
	MeshDapr    = "Dapr"
)

// MeshOf is the name of the mesh that carries the pod's traffic, or will when its injector has seen the pod; empty for
// none. proxy is its container in the pod: nil before the injector has run, and in ambient pods.
func MeshOf(pod *corev1.Pod, ns Namespace) (name string, proxy *corev1.Container) {
	if c := Find(&pod.Spec, IstioProxy); c != nil || IsIstioExpected(pod, ns) {
		return MeshIstio, c
	}
	name = OtherMeshOf(pod, ns)
	for _, m := range meshes {
		for _, c := range Containers(&pod.Spec) {
			if m.name == name && m.owns(&pod.Spec, c) {
				return name, c
			}
		}
	}
	return name, nil
}

// OtherMeshOf is MeshOf without Istio's sidecar.
func OtherMeshOf(pod *corev1.Pod, ns Namespace) string {
	for _, m := range meshes {
		if m.isIn(pod, ns) {
			return m.name
		}
	}
	if isAmbient(pod, ns) {
		return MeshAmbient
	}
	return ""
}

// The carriers that are no mesh.
const (
	CarrierNone     = "none"
	CarrierLastcall = "lastcall"
	CarrierHook     = "hook"
)

// hookSuffix marks a mesh's pod that lastcall's preStop hook holds: before and after are two series.
const hookSuffix = "-" + CarrierHook

// CarrierOf returns the carrier of a running pod's traffic and of its end, as a label: none, lastcall (its sidecar),
// hook (lastcall's preStop hook, which carries nothing), istio, istio-ambient, or another mesh such as linkerd; a
// mesh's name with lastcall's hook is istio-hook, linkerd-hook, and so on.
func CarrierOf(pod *corev1.Pod) string {
	hasOurs := IsOurs(pod)
	if hasOurs && Find(&pod.Spec, Sidecar) != nil {
		return CarrierLastcall
	}
	name, proxy := MeshOf(pod, Namespace{})
	switch isMesh := proxy != nil || name == MeshAmbient; {
	case isMesh && hasOurs:
		return nameOf(name) + hookSuffix
	case isMesh:
		return nameOf(name)
	case hasOurs:
		return CarrierHook
	}
	return CarrierNone
}

func nameOf(mesh string) string { return strings.ReplaceAll(strings.ToLower(mesh), " ", "-") }

// WithoutHook is a value of CarrierOf without lastcall's hook.
func WithoutHook(carrier string) string { return strings.TrimSuffix(carrier, hookSuffix) }

// StatusPorts are the listening ports of a proxy, by a value of CarrierOf, that serve the kubelet, Prometheus and
// people, not clients.
func StatusPorts(carrier string) []uint16 { return statusPorts[WithoutHook(carrier)] }

// statusPorts are StatusPorts by carrier.
var statusPorts = map[string][]uint16{
	// The clients' connections end at istio.InboundPort and istio.OutboundPort after the redirect, and count.
	"istio": {istio.AdminPort, istio.DebugPort, istio.StatusPort, istio.HealthPort, istio.DNSPort, istio.MetricsPort},
	// ztunnel listens in the pod's namespace, and connects to the app from there with the client's address: the app's own
	// sockets show the clients.
	"istio-ambient": {istio.OutboundPort, istio.InboundPort, istio.HBONEPort, istio.DNSPort, 15080, 15088},
	CarrierLastcall: {istio.AdminPort, istio.StatusPort, istio.HealthPort},
	"linkerd":       {4190, LinkerdAdminPort}, // policies of its control plane and admin
}

// ProxyPorts are the listening ports at which a mesh's sidecar accepts what its pod's clients and its app send, by a
// value of CarrierOf, and how often it connects to the app for one request if the app refuses. None: there is no such
// sidecar, or its ports are unknown.
func ProxyPorts(carrier string) (ports []uint16, attempts int) {
	switch WithoutHook(carrier) {
	case "istio": // inbound HTTP routes have retryOn reset-before-request and numRetries 2
		return []uint16{istio.OutboundPort, istio.InboundPort, istio.HBONEPort}, 3
	case "linkerd":
		return []uint16{4140, 4143}, 1
	}
	return nil, 0
}

// PortOf is the number of a container's port, which may be given by its name; 0 if it has none of that name.
func PortOf(c *corev1.Container, port intstr.IntOrString) uint16 {
	if port.Type == intstr.Int {
		return uint16(port.IntVal)
	}
	for _, p := range c.Ports {
		if p.Name == port.StrVal {
			return uint16(p.ContainerPort)
		}
	}
	return 0
}

// EventName is the name of the one Event for the end of a pod's container, by its restart count: the same from the
// controller, from each of its replicas, and from the observer.
func EventName(uid types.UID, pod, container string, restarts int32) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", uid, container, restarts))
	name := pod[:min(len(pod), 200)] // the limit is 253
	return strings.TrimRight(name, "-.") + "." + hex.EncodeToString(sum[:8])
}

// HasLastcall reports whether lastcall's sidecar or hook ends the pods with this value of CarrierOf.
func HasLastcall(carrier string) bool {
	return carrier == CarrierLastcall || carrier == CarrierHook || strings.HasSuffix(carrier, hookSuffix)
}

// IsProxy reports whether a container carries the traffic of the others: lastcall's or a mesh's.
func IsProxy(spec *corev1.PodSpec, c *corev1.Container) bool {
	return c != nil && (c.Name == Sidecar || c.Name == IstioProxy || IsMeshProxy(spec, c))
}

// Agent is how a pod's sidecar is called from within the pod's network namespace.
type Agent struct {
	Port  int    // its status port
	Token string // authorizes requests to it; it must not be logged
}

// AgentOf is the agent of a pod with lastcall's sidecar; its token is empty for other pods.
func AgentOf(pod *corev1.Pod) (a Agent) {
	c := Find(&pod.Spec, Sidecar)
	if c == nil || !IsOurs(pod) {
		return Agent{}
	}
	if a.Token, _ = Variable(c, HookToken); !Token.MatchString(a.Token) {
		return Agent{}
	}
	a.Port = istio.StatusPort
	for _, p := range c.Ports {
		if p.Name == PortStatus {
			a.Port = int(p.ContainerPort)
		}
	}
	return a
}

// IsAgent reports whether a container of the pod is lastcall's sidecar.
func IsAgent(pod *corev1.Pod, name string) bool { return name == Sidecar && IsOurs(pod) }
