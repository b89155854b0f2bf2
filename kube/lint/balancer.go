package lint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

func (e *examination) examineService(s *service) {
	for _, w := range s.workloads {
		if findings := Service(&s.Service, w.in); len(findings) > 0 {
			e.found(s.object, "Service "+s.Name+" over "+w.String(), "", findings...)
			break // the same for each
		}
	}
	e.deregistration(s.object, s.Annotations, "service.beta.kubernetes.io/aws-load-balancer-target-group-attributes", s.workloads)
	for _, w := range s.workloads {
		if d := s.Spec.TrafficDistribution; d != nil && s.isForRequests() && w.replicas != nil && *w.replicas > 0 && *w.replicas <= zones {
			if stays, isKnown := w.stays(); isKnown && stays == 0 {
				e.found(s.object, "Service "+s.Name+" over "+w.String(), "", Finding{ID: "LC025", Severity: Warning, Path: "spec.trafficDistribution", Text: fmt.Sprintf(
					"%s sends the connections of a zone or node to its own pods, and with %d replicas that is often a single one: until every proxy knows of its end, all of them are refused; run two pods in each zone, or delay the exit with a preStop sleep", *d, *w.replicas)})
			}
		}
	}
}

// zones is the usual number of zones of a region.
const zones = 3

// deregistrationKey is the attribute of a target group of AWS' load balancers: the time in which they let the requests of a
// target end that has left (by default 300 s).
const deregistrationKey = "deregistration_delay.timeout_seconds"

// deregistration: the load balancer keeps connections to a pod that has left for longer than the pod lives.
func (e *examination) deregistration(o *manifest.Object, annotations map[string]string, name string, workloads []*workload) {
	for attribute := range strings.SplitSeq(annotations[name], ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(attribute), "=")
		seconds, err := strconv.Atoi(value)
		if key != deregistrationKey || err != nil || seconds < 0 || seconds > 3600 { // AWS' range
			continue
		}
		for _, w := range workloads {
			if delay := time.Duration(seconds) * time.Second; delay > w.end.GracePeriod() {
				e.found(o, o.String()+" over "+w.String(), "", Finding{ID: "LC023", Severity: Warning, Path: "metadata.annotations[" + name + "]", Text: fmt.Sprintf(
					"the load balancer gives the requests of a pod that has left %v, but the pod's grace period is %v: SIGKILL cuts them; set terminationGracePeriodSeconds above %d, or a shorter delay", delay, w.end.GracePeriod(), seconds)})
				return
			}
		}
	}
}

func (e *examination) examineIngress(o *manifest.Object) {
	const name = "alb.ingress.kubernetes.io/target-group-attributes"
	var i networking.Ingress
	if o.Annotations[name] == "" {
		return
	}
	if err := o.Decode(&i); err != nil {
		e.unreadable(o, err)
		return
	}
	used := map[string]bool{}
	use := func(b *networking.IngressBackend) {
		if b != nil && b.Service != nil {
			used[b.Service.Name] = true
		}
	}
	use(i.Spec.DefaultBackend)
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			use(&p.Backend)
		}
	}
	var workloads []*workload
	for _, s := range e.services {
		if s.Namespace == o.Namespace && used[s.Name] {
			workloads = append(workloads, s.workloads...)
		}
	}
	e.deregistration(o, o.Annotations, name, workloads)
}

// examineBudget: the eviction API, which kubectl drain and cluster autoscalers use, refuses what a budget does not allow.
func (e *examination) examineBudget(b *budget) {
	about, spec := b.object.String(), b.Spec
	isZero := func(n *intstr.IntOrString) bool {
		return n != nil && (n.Type == intstr.Int && n.IntVal == 0 || n.Type == intstr.String && n.StrVal == "0%")
	}
	switch {
	case isZero(spec.MaxUnavailable):
		e.found(b.object, about, "", Finding{ID: "LC026", Severity: Warning, Path: "spec.maxUnavailable", Text: "0 forbids every eviction: kubectl drain and node upgrades wait until someone deletes the pods, without their replacements; allow 1", Fix: Fix{"spec.maxUnavailable", "1"}})
		return
	case spec.MinAvailable != nil && spec.MinAvailable.Type == intstr.String && spec.MinAvailable.StrVal == "100%":
		e.found(b.object, about, "", Finding{ID: "LC026", Severity: Warning, Path: "spec.minAvailable", Text: "100% forbids every eviction: kubectl drain and node upgrades wait until someone deletes the pods, without their replacements; use maxUnavailable: 1"})
		return
	case spec.Selector == nil || len(spec.Selector.MatchExpressions) > 0 || spec.MinAvailable == nil:
		return
	}
	for _, w := range b.workloads {
		if w.replicas == nil || *w.replicas == 0 {
			continue
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, int(*w.replicas), true)
		if err == nil && n >= int(*w.replicas) {
			e.found(b.object, about+" over "+w.String(), "", Finding{ID: "LC026", Severity: Warning, Path: "spec.minAvailable", Text: fmt.Sprintf(
				"%s of %d replicas forbids every eviction: kubectl drain and node upgrades wait until someone deletes the pods, without their replacements; run more replicas, or use maxUnavailable: 1", spec.MinAvailable, *w.replicas)})
			return
		}
	}
}

func (e *examination) inNamespace(namespace string) []*workload {
	var all []*workload
	for _, w := range e.workloads {
		if w.Namespace == namespace {
			all = append(all, w)
		}
	}
	return all
}
