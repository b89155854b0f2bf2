package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// withdraw takes the sidecar and the capture of an earlier injection out of the pod again: another injector has since
// added its proxy, and two redirects would leave the pod without traffic. What only the sidecar remembers goes back to
// where it was, or to Istio's agent, which reads the same variables: its injector takes probes at the status port for
// its own.
func (j *injection) withdraw() error {
	spec := &j.pod.Spec
	sidecar := pod.Find(spec, pod.Sidecar)
	istioProxy := pod.Find(spec, pod.IstioProxy)
	probers := map[string]corev1.Probe{}
	if err := readProbes(sidecar, probers); err != nil {
		return err
	}
	switch {
	case len(probers) == 0:
	case istioProxy == nil:
		j.restoreProbes(probers)
	default:
		if err := readProbes(istioProxy, probers); err != nil {
			return err
		}
		text, err := probesText(probers)
		if err != nil {
			return err
		}
		setVariable(istioProxy, meshconfig.VariableProbes, text)
	}
	a := j.pod.Annotations
	if text, isSet := pod.Variable(sidecar, meshconfig.VariablePrometheus); a[prometheusPath] == mergedPath {
		switch _, has := pod.Variable(istioProxy, meshconfig.VariablePrometheus); {
		case istioProxy != nil && isSet && !has:
			setVariable(istioProxy, meshconfig.VariablePrometheus, text)
		case istioProxy != nil:
		default:
			var was scrape
			if err := json.Unmarshal([]byte(unescape(text)), &was); isSet && err != nil {
				return fmt.Errorf("read the sidecar's %s: %w", meshconfig.VariablePrometheus, err)
			}
			a[prometheusScrape], a[prometheusPath], a[prometheusPort] = was.Scrape, was.Path, was.Port
			restored := []string{prometheusScrape, prometheusPath, prometheusPort}
			maps.DeleteFunc(a, func(name, value string) bool { return value == "" && slices.Contains(restored, name) })
		}
	}
	isAdded := func(c corev1.Container) bool { return isOwn(c.Name) }
	spec.InitContainers = slices.DeleteFunc(spec.InitContainers, isAdded)
	spec.Containers = slices.DeleteFunc(spec.Containers, isAdded)
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Name == volumePodInfo || v.Name == volumeBinary
	})
	for _, c := range pod.Containers(spec) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeBinary })
		if h := pod.HookOf(c); isOurHook(h) {
			pod.SetHook(c, pod.Restored(h))
		}
	}
	delete(a, AnnotationStatus)
	j.note("another proxy was added to the pod after lastcall's, which was taken out again")
	return nil
}

// restoreProbes points the probes and hooks that the agent has answered to the app again.
func (j *injection) restoreProbes(probers map[string]corev1.Probe) {
	for _, c := range pod.Containers(&j.pod.Spec) {
		for path, now := range answersOf(c) {
			p, isTurned := probers[path]
			switch {
			case !isTurned || now.HTTPGet == nil || now.HTTPGet.Path != path:
			case p.HTTPGet != nil:
				*now.HTTPGet = *p.HTTPGet // which a hook shares
			default:
				now.ProbeHandler = p.ProbeHandler
			}
		}
	}
}

// Unfinished returns the fault of an injected pod to which another injector has added its proxy since, or "".
func Unfinished(p *corev1.Pod) string {
	if isRedirectedTwice(p) {
		return "two proxies capture its traffic"
	}
	proxy := pod.Find(&p.Spec, pod.IstioProxy)
	if proxy != nil && !pod.IsNative(proxy) && !isProxyless(p) && pod.HookOf(proxy) == nil {
		return "the classic " + pod.IstioProxy + " has no preStop, and exits while requests are in flight"
	}
	return ""
}

// isRedirectedTwice reports whether an earlier injection captures the pod's traffic and another proxy does so too.
func isRedirectedTwice(p *corev1.Pod) bool {
	return pod.Find(&p.Spec, pod.Sidecar) != nil &&
		(pod.Find(&p.Spec, pod.IstioProxy) != nil || redirected(&p.Spec) != "" ||
			slices.ContainsFunc(pod.Containers(&p.Spec), func(c *corev1.Container) bool {
				return pod.IsMeshProxy(&p.Spec, c)
			}))
}
