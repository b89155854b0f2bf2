package pod

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// mesh is a product whose proxy carries the pod's traffic, or calls the app on loopback. lastcall then adds no proxy
// and captures nothing; the app's preStop watches its sockets.
type mesh struct {
	name string

	// containers are the names of its proxy; a name ends with * for any that begin so. neighbours are the init containers
	// of which one must be there if the name says little.
	containers, neighbours []string

	// keys are labels and annotations, of the pod or else of its namespace, that enable its injection with one of values;
	// any other value disables it.
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
const KnativeNote = "Knative makes the pods: timeoutSeconds is their grace period, its queue-proxy drains them until no " +
	"request has come for 30 s, and it refuses lifecycle"

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
