package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// SystemNamespaces contain the programs that a cluster needs to run webhooks: they are never injected.
var SystemNamespaces = []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}

// IsMissed reports whether injection is enabled, by the same rules as in Pod, for a pod that has none: no webhook was
// called for it. One that was left alone has the annotation with the reason. An invalid value disables injection.
func IsMissed(pod *metav1.ObjectMeta, o Options) bool {
	if pod.DeletionTimestamp != nil || pod.Annotations[AnnotationStatus] != "" ||
		pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return false
	}
	isEnabled, _, err := enabled(&corev1.Pod{ObjectMeta: *pod}, o)
	return isEnabled && err == nil
}

// enabled reports whether injection is enabled, and if not why: the pod's label, then its annotation, then the
// namespace's label, then the default.
func enabled(pod *corev1.Pod, o Options) (bool, string, error) {
	if slices.Contains(SystemNamespaces, o.Namespace.Name) || slices.Contains(SystemNamespaces, pod.Namespace) {
		return false, "a system namespace", nil
	}
	for _, place := range []struct {
		name   string
		values map[string]string
	}{
		{"the pod's label", pod.Labels},
		{"the pod's annotation", pod.Annotations},
		{"the namespace's label", o.Namespace.Labels},
	} {
		text, ok := place.values[AnnotationInject]
		if !ok {
			continue
		}
		switch text {
		case "true":
			return true, "", nil
		case "false":
			return false, fmt.Sprintf("%s %s is %s", place.name, AnnotationInject, text), nil
		}
		return false, "", fmt.Errorf("%s %s is %q: must be true or false", place.name, AnnotationInject, text)
	}
	return o.ByDefault, "neither the pod nor its namespace requests injection", nil
}

// Unfit returns the reason why a pod cannot be injected whatever it requests, or "".
func Unfit(p *corev1.Pod) string {
	spec := &p.Spec
	switch {
	case spec.HostNetwork:
		return "hostNetwork: capturing or draining its traffic would affect the node"
	case pod.IsWindows(spec):
		return "it runs on Windows, lastcall on Linux"
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "it is the mirror of a static pod, which cannot be changed through the API"
	case len(spec.Containers) == 0:
		return "it has no containers"
	case spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 0:
		return "terminationGracePeriodSeconds is 0: the pod is killed at once, without a drain"
	case spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds < 0:
		return "terminationGracePeriodSeconds is negative"
	}
	for _, c := range pod.Containers(spec) {
		if isOwn(c.Name) && !pod.IsOurs(p) {
			return fmt.Sprintf("it already has a container %s, which lastcall did not add", c.Name)
		}
	}
	return ""
}

// portsTaken returns an error text if a container listens on a port of the sidecar.
func portsTaken(spec *corev1.PodSpec, own []int32) string {
	for _, c := range pod.Containers(spec) {
		if c.Name == pod.Sidecar {
			continue
		}
		for _, p := range c.Ports {
			if p.Protocol != corev1.ProtocolUDP && slices.Contains(own, p.ContainerPort) {
				return fmt.Sprintf("container %s has port %d, which the sidecar needs", c.Name, p.ContainerPort)
			}
		}
	}
	return ""
}

// chooseProxy returns the part that carries the pod's traffic.
func chooseProxy(p *corev1.Pod, o Options) (Proxy, string, error) {
	chosen, err := choice(p, annotationProxy, Pipe, Envoy, Sockets, Istio)
	if err != nil {
		return "", "", err
	}
	wants := chosen == Pipe || chosen == Envoy
	hasSidecar := pod.Find(&p.Spec, pod.IstioProxy) != nil
	name := pod.OtherMeshOf(p, o.Namespace)
	isProxy := func(c *corev1.Container) bool { return pod.IsMeshProxy(&p.Spec, c) }
	isThere := name != pod.MeshDapr && slices.ContainsFunc(pod.Containers(&p.Spec), isProxy)
	isIstioExpected := pod.IsIstioExpected(p, o.Namespace) && !isThere
	switch {
	case (hasSidecar || isIstioExpected) && isProxyless(p):
		return Sockets, "Istio's agent runs without Envoy here (proxyless gRPC), so " +
			"the app's preStop watches its sockets", nil
	case hasSidecar && wants:
		return Istio, "the pod has Istio's sidecar: a second one is not added, although " +
			annotationProxy + " asks for it", nil
	case hasSidecar && chosen != Sockets:
		return Istio, "", nil
	case isIstioExpected && wants:
		return Istio, "Istio's injection is enabled: a second proxy is not added, although " +
			annotationProxy + " asks for it; sidecar.istio.io/inject: \"false\" leaves Istio's out", nil
	case isIstioExpected && chosen == "":
		return Istio, "Istio's injection is enabled: its sidecar is expected; " +
			"sidecar.istio.io/inject: \"false\" replaces it by lastcall's", nil
	case chosen == Istio && name == pod.MeshDapr: // which captures nothing
		return Istio, "", nil
	case name != "" && (wants || chosen == Istio):
		return Sockets, besideMesh(name) + ", although " + annotationProxy + " is " + string(chosen), nil
	case name != "":
		return Sockets, besideMesh(name), nil
	case chosen == Istio && isIstioRefused(p):
		return Sockets, "Istio's injection is disabled (sidecar.istio.io/inject), so " +
			"the app's preStop watches its sockets", nil
	case chosen == Envoy && o.EnvoyImage == "":
		return "", "", unableError{"annotation " + annotationProxy + " requires Envoy, " +
			"but the injection has no image with Envoy (--envoy-image)"}
	case chosen != "":
		return chosen, "", nil
	}
	return earlierProxy(p), "", nil
}

// earlierProxy is the form of an earlier injection, which may have known the namespace, or else the default: without
// it, a manifest that is injected again alone would get a proxy next to the mesh's.
func earlierProxy(pod *corev1.Pod) Proxy {
	switch status := pod.Annotations[AnnotationStatus]; {
	case status == statusIstio && !isIstioRefused(pod):
		return Istio
	case status == statusSockets:
		return Sockets
	}
	return Pipe
}

// isIstioRefused reports whether the pod itself disables Istio's injection.
func isIstioRefused(p *corev1.Pod) bool {
	text, _ := pod.IstioInject(p)
	return text == "false"
}

// chooseSidecar returns the form of the sidecar.
func chooseSidecar(pod *corev1.Pod, o Options) (Sidecar, error) {
	if form, err := choice(pod, annotationSidecar, Native, Classic); form != "" || err != nil {
		return form, err
	}
	return cmp.Or(IstioForm(pod), o.Sidecar, Native), nil
}

// IstioForm is the form of the sidecar by Istio's annotation; empty without one.
func IstioForm(pod *corev1.Pod) Sidecar {
	return map[string]Sidecar{"true": Native, "false": Classic}[pod.Annotations["sidecar.istio.io/nativeSidecar"]]
}

// choice is the word of an annotation, one of these or empty.
func choice[T ~string](pod *corev1.Pod, annotation string, words ...T) (T, error) {
	word := T(pod.Annotations[annotation])
	if word == "" || slices.Contains(words, word) {
		return word, nil
	}
	text := ""
	for _, w := range words[:len(words)-1] {
		text += ", " + string(w)
	}
	return "", fmt.Errorf("annotation %s is %q: must be %s or %s", annotation, word, text[2:], words[len(words)-1])
}

// isJob reports whether the pod is expected to end by itself.
func isJob(pod *corev1.Pod, o Options) bool {
	return o.Job || slices.ContainsFunc(pod.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Job" })
}

// mayCapture switches to sockets if the pod's traffic cannot or must not be captured.
func (j *injection) mayCapture() error {
	if !j.captures() {
		return nil
	}
	c, err := capture.Resolve(capture.Input{Annotations: j.pod.Annotations})
	if err != nil {
		return err
	}
	mode := j.Namespace.Labels["pod-security.kubernetes.io/enforce"]
	isNew := pod.Find(&j.pod.Spec, pod.Sidecar) == nil
	if isNew && (mode == "restricted" || mode == "baseline") {
		j.proxy = Sockets
		j.note("the namespace does not admit NET_ADMIN (pod security %s): "+
			"nothing is captured, the app's preStop watches its sockets", mode)
		return nil
	}
	if reason := redirected(&j.pod.Spec); reason != "" {
		return unableError{reason + ": lastcall adds no second redirect; " +
			"lastcall.dev/proxy: sockets lets the app's preStop watch its sockets instead"}
	}
	if c.Off {
		j.proxy = Sockets
		j.note("interceptionMode is NONE: nothing is captured, the app's preStop watches its sockets")
		return nil
	}
	if j.sidecar == Classic && isJob(j.pod, j.Options) && !pod.SharesProcesses(&j.pod.Spec) {
		return unableError{"it is a Job's, which a classic sidecar would keep from ending: " +
			"a native one ends with it (annotation " + annotationSidecar +
			", Kubernetes 1.29 and later), or with shareProcessNamespace: true lastcall sees the app end"}
	}
	s := j.settings
	own := []int32{istio.InboundPort, istio.OutboundPort, int32(s.StatusPort.Value), int32(s.AdminPort.Value)}
	if reason := portsTaken(&j.pod.Spec, own); reason != "" {
		return unableError{reason}
	}
	return nil
}

// besideMesh is the note about a pod with the proxy of a mesh other than Istio's sidecar: the connections that its hook
// does not see.
func besideMesh(mesh string) string {
	if mesh == pod.MeshAmbient {
		return "the pod is in Istio's ambient mesh: ztunnel stays the only proxy, and the app's preStop watches its " +
			"sockets; clients are not asked to close their kept connections"
	}
	return "the pod is in a mesh (" + mesh + "), whose proxy stays the only one: the app's preStop watches its sockets"
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
