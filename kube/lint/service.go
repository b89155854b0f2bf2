package lint

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// noticed is the time in which the fastest load balancer removes a node: GKE checks every 3 s and acts on the second
// failure; NLB takes 20 s and more.
const noticed = 6 * time.Second

// Service examines a Service together with a workload of the same input; Pod may be of any kind. With
// externalTrafficPolicy Local, the load balancer removes a node after its last pod has ended and the node's health
// check has failed. Until then the node sends new connections only to that pod, if it is terminating and still ready
// (KEP-1669).
func Service(s *corev1.Service, in Input) []Finding {
	if s.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal || len(s.Spec.Selector) == 0 ||
		!labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(in.Pod.Labels)) {
		return nil
	}
	stays := time.Duration(0)
	if in.Err == nil && in.Settings.MinimumDrain.IsSet() {
		stays = in.Settings.MinimumDrain.Value
	}
	l := &linting{Input: in}
	if proxy := carrier.Find(&l.Pod.Spec, carrier.IstioProxy); proxy != nil && in.Err == nil && !l.hasLastcall() {
		stays = max(stays, in.Settings.TerminationDrain.Value) // Istio's default is 5 s
	}
	l.containers(func(c *corev1.Container, _ string) {
		d, isLoop := carrier.Sleeps(carrier.PreStop(c))
		if h := carrier.PreStop(c); isLoop || h != nil && d == 0 { // a hook of unknown duration
			d = noticed
		}
		stays = max(stays, d)
	})
	if stays >= noticed {
		return nil
	}
	return []Finding{{ID: "LC016", Severity: Warning, Path: "spec.externalTrafficPolicy", Text: fmt.Sprintf(
		"Local sends connections to a node until its health check has failed, for at least %v, and its pods exit after %v: connections in between are refused; use Cluster, or delay the exit (MINIMUM_DRAIN_DURATION, preStop sleep)", noticed, stays)}}
}

// examineService applies the rule of a Service to the pods that it selects.
func (e *examination) examineService(s *service) {
	for _, w := range s.workloads {
		if findings := Service(&s.Service, w.in); len(findings) > 0 {
			e.found(s.object, "Service "+s.Name+" over "+w.String(), "", findings...)
			break // the same for each
		}
	}
}
