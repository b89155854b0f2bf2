package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// systemNamespaces hold what the cluster itself needs in order to run webhooks.
var systemNamespaces = []string{"kube-system", "kube-public", "kube-node-lease", "local-path-storage"}

// IsSystem says whether nothing is injected into a namespace whatever is said.
func IsSystem(namespace string) bool { return slices.Contains(systemNamespaces, namespace) }

// IsAsked says whether injection is wanted for a pod with this metadata, as Pod finds it. What cannot be understood
// is not wanted.
func IsAsked(pod *metav1.ObjectMeta, o Options) bool {
	asked, _, err := isAsked(&corev1.Pod{ObjectMeta: *pod}, o)
	return asked && err == nil
}

// isAsked finds whether injection is wanted: the pod's label, then its annotation,
// then the namespace's label, then the default.
func isAsked(pod *corev1.Pod, o Options) (bool, string, error) {
	if IsSystem(o.Namespace.Name) || IsSystem(pod.Namespace) {
		return false, "a namespace of the cluster's own", nil
	}
	for _, place := range []struct {
		name string
		said map[string]string
	}{
		{"the pod's label", pod.Labels},
		{"the pod's annotation", pod.Annotations},
		{"the namespace's label", o.Namespace.Labels},
	} {
		text, ok := place.said[AnnotationInject]
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
	return o.IsAsked, "neither the pod nor its namespace asks for it", nil
}

// unfit says why a pod is left alone whatever it asks for; empty if it is not.
func unfit(pod *corev1.Pod) string {
	spec := &pod.Spec
	switch {
	case spec.HostNetwork:
		return "hostNetwork: its traffic is the node's, and so would be whatever captures or drains it"
	case spec.OS != nil && spec.OS.Name == corev1.Windows, spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows):
		return "it is for Windows, lastcall is for Linux"
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return "it is a static pod's mirror, which the node made and nobody can change"
	case len(spec.Containers) == 0:
		return "it has no containers"
	case spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds == 0:
		return "terminationGracePeriodSeconds is 0: it is killed at once, and nothing can be drained"
	case spec.TerminationGracePeriodSeconds != nil && *spec.TerminationGracePeriodSeconds < 0:
		return "terminationGracePeriodSeconds is negative"
	}
	for _, c := range allContainers(spec) {
		if own := c.Name == containerSidecar || c.Name == containerCapture || c.Name == containerCopy; own && !isOurs(pod) {
			return fmt.Sprintf("it has a container %s already, which lastcall did not add", c.Name)
		}
	}
	return ""
}

// isOurs says whether the pod has been injected before.
func isOurs(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Annotations[AnnotationStatus], string(Injected))
}

// portsTaken says which container listens where the sidecar has to.
func portsTaken(spec *corev1.PodSpec, own []int32) string {
	for _, c := range allContainers(spec) {
		if c.Name == containerSidecar {
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

// chooseProxy finds what is to carry the pod's traffic.
func chooseProxy(pod *corev1.Pod, o Options) (Proxy, string, error) {
	said := Proxy(pod.Annotations[annotationProxy])
	switch said {
	case "", Pipe, Envoy, Sockets, Istio:
	default:
		return "", "", fmt.Errorf("annotation %s is %q: accepted are %s, %s, %s and %s", annotationProxy, said, Pipe, Envoy, Sockets, Istio)
	}
	switch {
	case find(&pod.Spec, istioProxy) != nil:
		if said == Pipe || said == Envoy {
			return Istio, "Istio's sidecar is in the pod: a second one is not added, although " + annotationProxy + " asks for it", nil
		}
		return Istio, "", nil
	case said == Envoy && o.EnvoyImage == "":
		return "", "", unableError{"annotation " + annotationProxy + " asks for Envoy, and no image with Envoy was given to the injection (--envoy-image)"}
	case said != "":
		return said, "", nil
	case isIstioAsked(pod, o.Namespace):
		return Istio, "Istio's injection is asked for: its sidecar is expected; " + annotationProxy + ": pipe puts lastcall's in its place", nil
	}
	return Pipe, "", nil
}

// isIstioAsked says whether Istio's injector will put its sidecar into the pod.
func isIstioAsked(pod *corev1.Pod, ns Namespace) bool {
	const inject = "sidecar.istio.io/inject"
	for _, said := range []map[string]string{pod.Labels, pod.Annotations} {
		if text, ok := said[inject]; ok {
			return text == "true"
		}
	}
	if pod.Labels["istio.io/rev"] != "" {
		return true
	}
	return ns.Labels["istio-injection"] == "enabled" || ns.Labels["istio-injection"] == "" && ns.Labels["istio.io/rev"] != ""
}

// chooseSidecar finds how the sidecar is to stand in the pod.
func chooseSidecar(pod *corev1.Pod, o Options) (Sidecar, error) {
	switch said := Sidecar(pod.Annotations[annotationSidecar]); said {
	case Native, Classic:
		return said, nil
	case "":
	default:
		return "", fmt.Errorf("annotation %s is %q: accepted are %s and %s", annotationSidecar, said, Native, Classic)
	}
	switch pod.Annotations["sidecar.istio.io/nativeSidecar"] { // Istio's word for the same
	case "true":
		return Native, nil
	case "false":
		return Classic, nil
	}
	if o.Sidecar == "" {
		return Native, nil
	}
	return o.Sidecar, nil
}

// isJob says whether the pod is expected to end by itself.
func isJob(pod *corev1.Pod, o Options) bool {
	return o.Job || slices.ContainsFunc(pod.OwnerReferences, func(r metaOwner) bool { return r.Kind == "Job" })
}
