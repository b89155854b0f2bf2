package inject

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

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
