package lint

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// How long a load balancer sends new connections to a pod that is being deleted (docs/load-balancers.md).
const (
	noticed    = 6 * time.Second   // the fastest with Local: GKE checks a node every 3 s and acts on the second failure
	albNoticed = 15 * time.Second  // an ALB with the pods' addresses: up to 10 s until the deregistration begins
	nlbNoticed = 190 * time.Second // an NLB with the pods' addresses: 180 s more
)

// Annotations with which aws-load-balancer-controller registers the addresses of the pods, if the value is ip.
const (
	albTarget = "alb.ingress.kubernetes.io/target-type"
	nlbTarget = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type"
)

// examineService examines a Service together with the workloads that it selects. With externalTrafficPolicy Local, the
// load balancer removes a node after its last pod has ended and the node's health check has failed. Until then the node
// sends new connections only to that pod, if it is terminating and still ready (KEP-1669).
func (e *examination) examineService(s *service) {
	isNLB := s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Annotations[nlbTarget] == "ip"
	isLocal := s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	if !isNLB && !isLocal {
		return
	}
	for _, w := range s.workloads {
		var findings []Finding
		switch stays := w.stays(); {
		case isNLB:
			findings = targets(nlbTarget, "NLB", nlbNoticed, stays)
		case stays < noticed:
			findings = []Finding{{ID: "LC016", Severity: Warning, Path: "spec.externalTrafficPolicy", Text: fmt.Sprintf(
				"Local sends connections to a node until its health check has failed, for at least %v, "+
					"and its pods exit after %v: connections in between are refused; "+
					"use Cluster, or delay the exit (MINIMUM_DRAIN_DURATION, preStop sleep)",
				noticed, stays)}}
		}
		if len(findings) > 0 {
			e.found(s.object, "Service "+s.Name+" over "+w.String(), nil, findings...)
			break // the same for each
		}
	}
}

// targets compares the times of a load balancer whose targets are the addresses of the pods.
func targets(annotation, balancer string, needs, stays time.Duration) []Finding {
	if stays >= needs {
		return nil
	}
	return []Finding{{ID: "LC016", Severity: Warning, Path: "metadata.annotations[" + annotation + "]", Text: fmt.Sprintf(
		"ip: an %s sends new connections to a pod until it has learned of its end, "+
			"and the pods accept them for %v: "+
			"set a preStop sleep or lastcall.dev/minimum-drain of %v, and a longer terminationGracePeriodSeconds",
		balancer, stays, needs)}}
}

// stays is the time for which a pod accepts connections after its deletion; with a hook or a setting of its own, whose
// duration is unknown, the longest that a load balancer needs.
func (l *linting) stays() (stays time.Duration) {
	if l.accepts != nil {
		return *l.accepts
	}
	defer func() { l.accepts = &stays }()
	if l.err == nil && (l.settings.MinimumDrain.IsSet() || l.hasLastcall()) {
		stays = l.settings.MinimumDrain.Value
	}
	if proxy := pod.Find(&l.pod.Spec, pod.IstioProxy); proxy != nil && l.err == nil && !l.hasLastcall() {
		stays = max(stays, l.settings.TerminationDrain.Value) // Istio's default is 5 s
	}
	l.containers(func(c *corev1.Container, _ string) {
		if l.isServing(c) || pod.IsProxy(&l.pod.Spec, c) {
			stays = max(stays, staysFor(pod.ReadHook(&l.pod.Spec, c), c))
		}
	})
	return stays
}

// staysFor is stays of one container. A known server closes its port at its stop signal, whatever its settings.
func staysFor(hook pod.Hook, c *corev1.Container) time.Duration {
	signal, _ := pod.StopSignal(c)
	reaction, _ := pod.Reacts(&corev1.PodSpec{}, c, signal, false)
	switch {
	case hook.Stops:
		return hook.StopsAt
	case hook.Duration > 0 && hook.IsKnown:
		return hook.Duration
	case !hook.IsKnown, hook.Failure() == "" && reaction == course.Unsure && delaysItself(c):
		return nlbNoticed
	}
	return 0
}

// examineIngress applies the same rule to the pods behind an ALB.
func (e *examination) examineIngress(o *manifest.Object) {
	var ingress networking.Ingress
	if !o.Is("networking.k8s.io", "Ingress") || o.Annotations[albTarget] != "ip" || o.Decode(&ingress) != nil {
		return
	}
	e.result.Examined++
	var paths []networking.HTTPIngressPath
	if b := ingress.Spec.DefaultBackend; b != nil {
		paths = append(paths, networking.HTTPIngressPath{Backend: *b})
	}
	for _, r := range ingress.Spec.Rules {
		if r.HTTP != nil {
			paths = append(paths, r.HTTP.Paths...)
		}
	}
	var backends []*service
	for _, p := range paths {
		if p.Backend.Service != nil {
			backends = append(backends, e.called[p.Backend.Service.Name]...)
		}
	}
	for _, s := range backends {
		if !areNear(s.object, o) {
			continue
		}
		for _, w := range s.workloads {
			if findings := targets(albTarget, "ALB", albNoticed, w.stays()); len(findings) > 0 {
				e.found(o, o.String()+" over "+w.String(), nil, findings...)
				return // the same for each
			}
		}
	}
}
