package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
)

// mesh is a product whose proxy carries the pod's traffic, or calls the app on loopback. lastcall then adds no proxy and
// captures nothing; the app's preStop watches its sockets.
type mesh struct {
	name string

	// containers are the names of its proxy; a name ends with * for any that begin so. neighbours are the init containers of
	// which one must be there if the name says little.
	containers, neighbours []string

	// keys are labels and annotations, of the pod or else of its namespace, that enable its injection with one of values;
	// any other value disables it.
	keys   []string
	values []string

	// marks are annotations or labels that its injector writes.
	marks []string
}

// Names of meshes whose pods are special.
const (
	linkerd = "linkerd"
	dapr    = "Dapr"
)

var meshes = []mesh{
	{
		name: linkerd, containers: []string{"linkerd-proxy"},
		keys: []string{"linkerd.io/inject"}, values: []string{"enabled", "ingress"},
		marks: []string{"linkerd.io/proxy-version"},
	}, {
		name: "Kuma", containers: []string{"kuma-sidecar"},
		keys: []string{"kuma.io/sidecar-injection"}, values: []string{"enabled", "true"},
		marks: []string{"kuma.io/sidecar-injected"},
	}, {
		name: "Consul", containers: []string{"consul-dataplane", "consul-dataplane-*"},
		keys: []string{"consul.hashicorp.com/connect-inject"}, values: []string{"true"},
		marks: []string{"consul.hashicorp.com/connect-inject-status"},
	}, {
		name: dapr, containers: []string{"daprd"},
		keys: []string{"dapr.io/enabled"}, values: []string{"true"},
		marks: []string{"dapr.io/sidecar-injected"},
	}, {
		name: "Open Service Mesh", containers: []string{"envoy"}, neighbours: []string{"osm-init"},
		keys: []string{"openservicemesh.io/sidecar-injection"}, values: []string{"enabled", "true"},
		marks: []string{"osm-proxy-uuid"},
	}, {
		name: "AWS App Mesh", containers: []string{"envoy"}, neighbours: []string{"proxyinit"},
		keys: []string{"appmesh.k8s.aws/sidecarInjectorWebhook"}, values: []string{"enabled"},
	},
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
	return named && (len(m.neighbours) == 0 || slices.ContainsFunc(m.neighbours, func(name string) bool { return find(spec, name) != nil }))
}

// isMeshProxy reports whether a container is a mesh's proxy other than Istio's.
func isMeshProxy(spec *corev1.PodSpec, c *corev1.Container) bool {
	return slices.ContainsFunc(meshes, func(m mesh) bool { return m.owns(spec, c) })
}

// isIn reports whether the mesh's proxy is in the pod or is going to be.
func (m *mesh) isIn(pod *corev1.Pod, ns Namespace) bool {
	if slices.ContainsFunc(allContainers(&pod.Spec), func(c *corev1.Container) bool { return m.owns(&pod.Spec, c) }) {
		return true
	}
	for _, mark := range m.marks {
		if pod.Annotations[mark] != "" || pod.Labels[mark] != "" {
			return true
		}
	}
	for _, places := range []map[string]string{pod.Labels, pod.Annotations, ns.Labels, ns.Annotations} {
		for _, key := range m.keys {
			if value, said := places[key]; said {
				return slices.Contains(m.values, value)
			}
		}
	}
	return false
}

// isAmbient reports whether the pod is in Istio's ambient mesh: ztunnel, on the node, carries its traffic.
func isAmbient(pod *corev1.Pod, ns Namespace) bool {
	const mode = "istio.io/dataplane-mode"
	if value, said := pod.Labels[mode]; said {
		return value == "ambient"
	}
	return pod.Annotations["ambient.istio.io/redirection"] == "enabled" || ns.Labels[mode] == "ambient"
}

// meshOf is the name of the mesh whose proxy other than Istio's sidecar carries the pod's traffic, and what the app's hook
// does not see because of it.
func meshOf(pod *corev1.Pod, ns Namespace) (name, note string) {
	for _, m := range meshes {
		if m.isIn(pod, ns) {
			return m.name, "the pod is in a mesh (" + m.name + "), whose proxy stays the only one: the app's preStop watches its sockets"
		}
	}
	if isAmbient(pod, ns) {
		return "Istio ambient", "the pod is in Istio's ambient mesh: ztunnel stays the only proxy, and the app's preStop watches its sockets; clients are not asked to close their kept connections"
	}
	return "", ""
}

// linkerdFlags let the hook read the counters of linkerd's proxy, at its admin port.
func (j *injection) linkerdFlags() []string {
	if name, _ := meshOf(j.pod, j.Namespace); name != linkerd {
		return nil
	}
	const key = "config.linkerd.io/admin-port"
	port := cmp.Or(j.pod.Annotations[key], j.Namespace.Annotations[key])
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		port = "4191"
	}
	if j.pod.Annotations[annotationLinkerdShutdown] == "true" {
		return []string{"--linkerd", port, "--linkerd-shutdown"}
	}
	return []string{"--linkerd", port}
}

// How long linkerd's proxy keeps its idle connection to the app: the annotation and the variable that its injector makes
// of it.
const (
	linkerdIdleAnnotation = "config.linkerd.io/proxy-inbound-discovery-cache-unused-timeout"
	linkerdIdleVariable   = "LINKERD2_PROXY_INBOUND_DISCOVERY_IDLE_TIMEOUT"
	linkerdIdle           = "2s"
	linkerdIdleDefault    = "90s"
)

// shortenLinkerdIdle lets linkerd's proxy close an idle HTTP/2 connection to the app soon: its counters stop showing that
// one is idle once a client has left before its response, and linkerd's default would hold the hook to its deadline.
func (j *injection) shortenLinkerdIdle(ports []watched) {
	proxy := find(&j.pod.Spec, "linkerd-proxy")
	value, _ := lookUp(proxy, linkerdIdleVariable)
	_, said := j.pod.Annotations[linkerdIdleAnnotation]
	isMuxed := slices.ContainsFunc(ports, func(w watched) bool { return meshconfig.IsMuxedPort(w.protocol) })
	if j.linkerdFlags() == nil || said || !isMuxed || proxy != nil && value != linkerdIdleDefault {
		return
	}
	j.pod.Annotations[linkerdIdleAnnotation] = linkerdIdle
	if proxy != nil {
		setVariable(proxy, linkerdIdleVariable, linkerdIdle)
	}
	j.note("%s is %s: linkerd's proxy would keep an idle HTTP/2 connection to the app for %s, and hold its end", linkerdIdleAnnotation, linkerdIdle, linkerdIdleDefault)
}

// redirectors are init containers of products that redirect a pod's traffic.
var redirectors = []string{"istio-init", "istio-validation", "linkerd-init", "linkerd-network-validator", "kuma-init", "kuma-validation", "osm-init", "proxyinit"}

// redirected returns a reason if another program seems to redirect the pod's traffic: two redirects leave a pod without
// traffic, or its proxies in a loop.
func redirected(spec *corev1.PodSpec) string {
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.Name == containerCapture || c.Name == containerSidecar {
			continue
		}
		if slices.Contains(redirectors, c.Name) || strings.HasSuffix(c.Name, "-iptables") {
			return fmt.Sprintf("init container %s redirects its traffic to another proxy", c.Name)
		}
		if text := strings.Join(slices.Concat(c.Command, c.Args), " "); isNetAdmin(c) && (strings.Contains(text, "iptables") || strings.Contains(text, "15001") || strings.Contains(text, "15006")) {
			return fmt.Sprintf("init container %s has NET_ADMIN and seems to redirect its traffic to another proxy", c.Name)
		}
	}
	return ""
}

func isNetAdmin(c *corev1.Container) bool {
	s := c.SecurityContext
	return s != nil && (s.Privileged != nil && *s.Privileged || s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, func(name corev1.Capability) bool {
		return name == "NET_ADMIN" || name == "ALL"
	}))
}
