package lint

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// passesTLS: only the app can ask the clients of its own TLS to leave.
func (w *workload) passesTLS(l *linting) {
	ends := inject.OpaqueEnd(w.Pod, inject.Learned{})
	if !w.end.Lastcall || w.end.Mesh != "" || ends == "" || w.in.Job || terminatesTLS(&w.Pod.Spec) {
		return
	}
	for _, p := range inject.TLSPorts(w.Pod) {
		l.find("LC030", Warning, "spec.containers", "port %s passes TLS through to the app: %s; if the app finishes its requests at SIGTERM, set the annotation lastcall.dev/app: finishes; or serve HTTP/1.1 only, whose silent connections lastcall can close; or terminate TLS in the sidecar (docs/tls.md)", portName(p), ends)
		return
	}
}

// terminatesTLS reports whether a sidecar that is written by hand has a certificate.
func terminatesTLS(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(carrier.Containers(spec), func(c *corev1.Container) bool {
		args, isLastcall := lastcallArguments(c)
		return isLastcall && strings.Contains(strings.Join(args, " "), "tls-cert=")
	})
}

func portName(p corev1.ContainerPort) string {
	if p.Name != "" {
		return p.Name
	}
	return strconv.Itoa(int(p.ContainerPort))
}
