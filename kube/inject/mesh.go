package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// besideMesh is the note about a pod with the proxy of a mesh other than Istio's sidecar: the connections that its hook
// does not see.
func besideMesh(mesh string) string {
	if mesh == pod.MeshAmbient {
		return "the pod is in Istio's ambient mesh: ztunnel stays the only proxy, and the app's preStop watches its " +
			"sockets; clients are not asked to close their kept connections"
	}
	return "the pod is in a mesh (" + mesh + "), whose proxy stays the only one: the app's preStop watches its sockets"
}

// linkerdFlags let the hook read the counters of linkerd's proxy, at its admin port.
func (j *injection) linkerdFlags() []string {
	if pod.OtherMeshOf(j.pod, j.Namespace) != pod.MeshLinkerd {
		return nil
	}
	const key = "config.linkerd.io/admin-port"
	port := cmp.Or(j.pod.Annotations[key], j.Namespace.Annotations[key])
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		port = strconv.Itoa(pod.LinkerdAdminPort)
	}
	if j.pod.Annotations[annotationLinkerdShutdown] == "true" {
		return []string{"--linkerd", port, "--linkerd-shutdown"}
	}
	return []string{"--linkerd", port}
}

// How long linkerd's proxy keeps its idle connection to the app: the annotation and the variable that its injector
// makes of it.
const (
	linkerdIdleAnnotation = "config.linkerd.io/proxy-inbound-discovery-cache-unused-timeout"
	linkerdIdleVariable   = "LINKERD2_PROXY_INBOUND_DISCOVERY_IDLE_TIMEOUT"
	linkerdIdle           = "2s"
	linkerdIdleDefault    = "90s"
)

// shortenLinkerdIdle lets linkerd's proxy close an idle HTTP/2 connection to the app soon: its counters stop showing
// that one is idle once a client has left before its response, and linkerd's default would hold the hook to its
// deadline.
func (j *injection) shortenLinkerdIdle(ports []watched) {
	proxy := pod.Find(&j.pod.Spec, "linkerd-proxy")
	value, _ := pod.Variable(proxy, linkerdIdleVariable)
	_, isSet := j.pod.Annotations[linkerdIdleAnnotation]
	isMuxed := slices.ContainsFunc(ports, func(w watched) bool { return meshconfig.IsMuxedPort(w.protocol) })
	if j.linkerdFlags() == nil || isSet || !isMuxed || proxy != nil && value != linkerdIdleDefault {
		return
	}
	j.pod.Annotations[linkerdIdleAnnotation] = linkerdIdle
	if proxy != nil {
		setVariable(proxy, linkerdIdleVariable, linkerdIdle)
	}
	j.note("%s is %s: linkerd's proxy would keep an idle HTTP/2 connection to the app for %s, and hold its end",
		linkerdIdleAnnotation, linkerdIdle, linkerdIdleDefault)
}

// redirectors are init containers of products that redirect a pod's traffic.
var redirectors = []string{
	"istio-init", "istio-validation", "linkerd-init", "linkerd-network-validator",
	"kuma-init", "kuma-validation", "osm-init", "proxyinit",
}

// redirected returns a reason if another program seems to redirect the pod's traffic: two redirects leave a pod without
// traffic, or its proxies in a loop.
func redirected(spec *corev1.PodSpec) string {
	for _, c := range pod.Each(spec.InitContainers) {
		if c.Name == containerCapture || c.Name == pod.Sidecar {
			continue
		}
		if slices.Contains(redirectors, c.Name) || strings.HasSuffix(c.Name, "-iptables") {
			return fmt.Sprintf("init container %s redirects its traffic to another proxy", c.Name)
		}
		text := strings.Join(slices.Concat(c.Command, c.Args), " ")
		if isNetAdmin(c) && (strings.Contains(text, "iptables") ||
			strings.Contains(text, strconv.Itoa(istio.OutboundPort)) ||
			strings.Contains(text, strconv.Itoa(istio.InboundPort))) {
			return fmt.Sprintf("init container %s has NET_ADMIN and seems to redirect its traffic to another proxy", c.Name)
		}
	}
	return ""
}

func isNetAdmin(c *corev1.Container) bool {
	s := c.SecurityContext
	isAdmin := func(name corev1.Capability) bool { return name == "NET_ADMIN" || name == "ALL" }
	return s != nil && (ptr.Deref(s.Privileged, false) ||
		s.Capabilities != nil && slices.ContainsFunc(s.Capabilities.Add, isAdmin))
}

// consulOn is the annotation that switches pod.ConsulGrace off if it is false.
const consulOn = "consul.hashicorp.com/enable-sidecar-proxy-lifecycle"

// aliases reads the settings of other meshes and returns the time for the pod's termination: they can shorten grace but
// not extend it, because SIGKILL comes at its end. minimum is the variable for the minimum drain; empty if the pod sets
// it with Istio's own setting, which has precedence.
func (j *injection) aliases(grace time.Duration, minimum string) time.Duration {
	for _, name := range []string{pod.LinkerdGrace, pod.KumaDrain, pod.ConsulGrace} {
		text, isSet := j.pod.Annotations[name]
		if !isSet || name == pod.ConsulGrace && j.pod.Annotations[consulOn] == "false" {
			continue
		}
		limit, ok := pod.MeshTimer(name, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", name, text)
		case limit < time.Second:
			j.note("ignoring %s %s: lastcall exits as soon as no request is in flight", name, text)
		case limit >= grace:
			j.note("ignoring %s %s: the drain ends before the grace period of %v in any case", name, text, grace)
		default:
			grace = limit.Round(time.Second)
			j.note("using %s: the drain lasts at most %v", name, grace)
		}
	}
	if text, isSet := j.pod.Annotations[pod.LinkerdWait]; isSet {
		wait, ok := pod.MeshTimer(pod.LinkerdWait, text)
		switch {
		case !ok:
			j.note("ignoring %s: %q is not a duration", pod.LinkerdWait, text)
		case minimum == "":
			j.note("ignoring %s: %s is set", pod.LinkerdWait, meshconfig.VariableMinimumDrain)
		case wait >= grace:
			j.note("ignoring %s %v: it must be shorter than the grace period of %v, or no time would remain for the drain",
				pod.LinkerdWait, wait, grace)
		default:
			j.env.set(minimum, wait.String())
			j.note("using %s as %s %v", pod.LinkerdWait, minimum, wait)
		}
	}
	return grace
}
