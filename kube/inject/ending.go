package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// AppEndOf returns the app's behaviour at SIGTERM, and its source: the annotation, earlier terminations, or the server.
func AppEndOf(pod *corev1.Pod, learned Learned) (end drain.AppEnd, why string, err error) {
	switch end, err = drain.ParseAppEnd(pod.Annotations[annotationApp]); {
	case err != nil:
		return end, "", fmt.Errorf("annotation %s is %q: must be %s, %s or %s", annotationApp, pod.Annotations[annotationApp],
			drain.AppFinishes, drain.AppExits, drain.AppAuto)
	case end != drain.AppAuto:
		return end, "annotation " + annotationApp, nil
	case learned.App != drain.AppAuto:
		return learned.App, cmp.Or(learned.Why, "earlier terminations of the workload"), nil
	case pod.Annotations[annotationApp] == drain.AppAuto.String():
		return drain.AppAuto, "", nil
	}
	if servers := finishing(pod); len(servers) > 0 {
		return drain.AppFinishes, "known of " + strings.Join(servers, ", "), nil
	}
	return drain.AppAuto, "", nil
}

// TLSPorts are the ports of a pod's apps whose TLS seems to be the app's own: lastcall passes it through and does not
// see its requests. Ports are recognized by their names, or else by their numbers.
func TLSPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range apps(&pod.Spec) {
		for _, p := range c.Ports {
			name := meshconfig.PortProtocol(p.Name)
			isTLS := meshconfig.IsTLSPort(name) || name == "" && (p.ContainerPort == 443 || p.ContainerPort == 8443)
			if isTCP(p) && isTLS {
				out = append(out, p)
			}
		}
	}
	return out
}

// OpaqueEnd describes the end of connections to a port with TLS of the app's own; empty if the app finishes by itself.
func OpaqueEnd(pod *corev1.Pod, learned Learned) string {
	end, why, err := AppEndOf(pod, learned)
	switch {
	case err != nil || end == drain.AppFinishes:
		return ""
	case end == drain.AppExits:
		return "open connections hold the app until the last call, which cuts them: it exits at SIGTERM (" + why + ")"
	}
	return "open connections hold the app until the last call, which cuts them: what it does at SIGTERM is unknown"
}

// finishing names the pod's apps if all of those that serve are known to finish at their stop signals. Apps without a
// port do not count.
func finishing(p *corev1.Pod) []string {
	var out []string
	for _, c := range apps(&p.Spec) {
		signal, _ := pod.StopSignal(c)
		reaction, server := pod.Reacts(&p.Spec, c, signal, true)
		switch {
		case reaction == podend.Finishes:
			out = append(out, server+" at "+signal)
		case slices.ContainsFunc(c.Ports, isTCP):
			return nil
		}
	}
	return out
}
