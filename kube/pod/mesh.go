package pod

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
	// ztunnel listens in the pod's namespace, and connects to the app from there with the client's address: the app's
	// own sockets show the clients.
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
	a.Port = cmp.Or(int(PortOf(c, intstr.FromString(PortStatus))), istio.StatusPort)
	return a
}

// IsAgent reports whether a container of the pod is lastcall's sidecar.
func IsAgent(pod *corev1.Pod, name string) bool { return name == Sidecar && IsOurs(pod) }

// mesh is a product whose proxy carries the pod's traffic, or calls the app on loopback. lastcall then adds no proxy
// and captures nothing; the app's preStop watches its sockets.
type mesh struct {
	name string

	// containers are the names of its proxy; a name ends with * for any that begin so. neighbours are the init
	// containers of which one must be there if the name says little.
	containers, neighbours []string

	// keys are labels and annotations, of the pod or else of its namespace, that enable its injection with one of
	// values; any other value disables it.
	keys   []string
	values []string

	injectedKeys []string // annotations or labels that its injector writes
}

var meshes = []mesh{
	{
		name: MeshLinkerd, containers: []string{"linkerd-proxy"},
		keys: []string{"linkerd.io/inject"}, values: []string{"enabled", "ingress"},
		injectedKeys: []string{"linkerd.io/proxy-version"},
	}, {
		name: "Kuma", containers: []string{"kuma-sidecar"},
		keys: []string{"kuma.io/sidecar-injection"}, values: []string{"enabled", "true"},
		injectedKeys: []string{"kuma.io/sidecar-injected"},
	}, {
		name: "Consul", containers: []string{"consul-dataplane", "consul-dataplane-*"},
		keys: []string{"consul.hashicorp.com/connect-inject"}, values: []string{"true"},
		injectedKeys: []string{"consul.hashicorp.com/connect-inject-status"},
	}, {
		name: MeshDapr, containers: []string{"daprd"},
		keys: []string{"dapr.io/enabled"}, values: []string{"true"},
		injectedKeys: []string{"dapr.io/sidecar-injected"},
	}, {
		name: "Open Service Mesh", containers: []string{"envoy"}, neighbours: []string{"osm-init"},
		keys: []string{"openservicemesh.io/sidecar-injection"}, values: []string{"enabled", "true"},
		injectedKeys: []string{"osm-proxy-uuid"},
	}, {
		name: "AWS App Mesh", containers: []string{"envoy"}, neighbours: []string{"proxyinit"},
		keys: []string{"appmesh.k8s.aws/sidecarInjectorWebhook"}, values: []string{"enabled"},
	},
}

// LinkerdAdminPort of linkerd's proxy, unless config.linkerd.io/admin-port is set. It counts connections and takes
// POST /shutdown.
const LinkerdAdminPort = 4191

// Annotations by which other meshes time the end of their proxies.
const (
	LinkerdGrace = "config.linkerd.io/shutdown-grace-period"                // the longest drain
	LinkerdWait  = "config.alpha.linkerd.io/proxy-wait-before-exit-seconds" // before the drain
	KumaDrain    = "kuma.io/sidecar-drain-time"                             // the longest drain
	ConsulGrace  = "consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds"
	DaprGrace    = "dapr.io/graceful-shutdown-seconds"
	DaprBlock    = "dapr.io/block-shutdown-duration"

	DaprPort = "dapr.io/app-port" // at which dapr reaches the app; no timer
)

// LinkerdNative is the setting of linkerd's form, true or false, or empty: its name has lost alpha and then beta.
func LinkerdNative(p *corev1.Pod) (value string) {
	for _, stage := range []string{"", "beta.", "alpha."} {
		value = cmp.Or(value, p.Annotations["config."+stage+"linkerd.io/proxy-enable-native-sidecar"])
	}
	return value
}

// LinkerdSkips reports whether linkerd does not redirect the connections to a port of the app.
func LinkerdSkips(p *corev1.Pod, port uint16) bool {
	skipped := strings.Split(p.Annotations["config.linkerd.io/skip-inbound-ports"], ",")
	return slices.ContainsFunc(skipped, func(text string) bool {
		first, last, isRange := strings.Cut(strings.TrimSpace(text), "-")
		from, _ := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		return int(port) == from || isRange && from <= int(port) && int(port) <= to
	})
}

// MeshTimer reads such an annotation: a duration, or seconds if its name ends so.
func MeshTimer(name, text string) (time.Duration, bool) {
	if strings.HasSuffix(name, "-seconds") {
		n, err := strconv.ParseUint(text, 10, 31)
		return time.Duration(n) * time.Second, err == nil
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d >= 0
}

// MeshKeys are the annotations of a namespace that Pod reads.
func MeshKeys() []string {
	var out []string
	for _, m := range meshes {
		out = append(out, m.keys...)
	}
	return out
}

// owns reports whether a container is the mesh's proxy.
func (m *mesh) owns(spec *corev1.PodSpec, c *corev1.Container) bool {
	named := slices.ContainsFunc(m.containers, func(name string) bool {
		prefix, open := strings.CutSuffix(name, "*")
		return c.Name == prefix || open && strings.HasPrefix(c.Name, prefix)
	})
	isThere := func(name string) bool { return Find(spec, name) != nil }
	return named && (len(m.neighbours) == 0 || slices.ContainsFunc(m.neighbours, isThere))
}

// IsMeshProxy reports whether a container is a mesh's proxy other than Istio's.
func IsMeshProxy(spec *corev1.PodSpec, c *corev1.Container) bool {
	return slices.ContainsFunc(meshes, func(m mesh) bool { return m.owns(spec, c) })
}

// isIn reports whether the mesh's proxy is in the pod or is going to be.
func (m *mesh) isIn(pod *corev1.Pod, ns Namespace) bool {
	if slices.ContainsFunc(Containers(&pod.Spec), func(c *corev1.Container) bool { return m.owns(&pod.Spec, c) }) {
		return true
	}
	for _, key := range m.injectedKeys {
		if pod.Annotations[key] != "" || pod.Labels[key] != "" {
			return true
		}
	}
	for _, places := range []map[string]string{pod.Labels, pod.Annotations, ns.Labels, ns.Annotations} {
		for _, key := range m.keys {
			if value, isSet := places[key]; isSet {
				return slices.Contains(m.values, value)
			}
		}
	}
	return false
}

// isAmbient reports whether the pod is in Istio's ambient mesh: ztunnel, on the node, carries its traffic.
func isAmbient(pod *corev1.Pod, ns Namespace) bool {
	const mode = "istio.io/dataplane-mode"
	if value, isSet := pod.Labels[mode]; isSet {
		return value == "ambient"
	}
	return pod.Annotations["ambient.istio.io/redirection"] == "enabled" || ns.Labels[mode] == "ambient"
}

// IstioInject is the pod's own setting of Istio's injection.
func IstioInject(pod *corev1.Pod) (text string, isSet bool) {
	const name = "sidecar.istio.io/inject"
	if text, isSet = pod.Labels[name]; !isSet {
		text, isSet = pod.Annotations[name]
	}
	return text, isSet
}

// IsIstioExpected reports whether Istio's injector will put its sidecar into the pod.
func IsIstioExpected(pod *corev1.Pod, ns Namespace) bool {
	switch text, isSet := IstioInject(pod); {
	case isSet:
		return text == "true" && ns.Labels["istio-injection"] != "disabled"
	case pod.Labels["istio.io/rev"] != "":
		return true
	case len(ns.Labels) == 0 && pod.Annotations[IstioTemplates] != "": // a manifest without its namespace
		return true
	}
	injection := ns.Labels["istio-injection"]
	return injection == "enabled" || injection == "" && ns.Labels["istio.io/rev"] != ""
}

// The hook that Knative gives the containers of its pods: its queue-proxy answers when no request has come for so long.
const (
	knativePort  = 8022
	knativeWait  = "/wait-for-drain"
	knativeQuiet = 30 * time.Second
)

// KnativeNote is how the pods of Knative end.
const KnativeNote = "Knative makes the pods: timeoutSeconds is their grace period, its queue-proxy drains them until " +
	"no request has come for 30 s, and it refuses lifecycle"

// Knative is the pod with the hooks that Knative gives its containers.
func Knative(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	for _, c := range Each(p.Spec.Containers) {
		SetHook(c, &corev1.LifecycleHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: knativeWait, Port: intstr.FromInt32(knativePort)},
		})
	}
	return p
}
