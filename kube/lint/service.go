package lint

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// noticed is what the quickest of the load balancers needs to take a node out: GKE asks each 3 s and believes the second
// answer; NLB takes 20 s and more.
const noticed = 6 * time.Second

// Service examines a Service together with a workload of the same input; Pod may be of any kind of it. With
// externalTrafficPolicy Local a node is taken out of the load balancer when its last pod goes, and only when its health
// check has said so. Until then what comes is for that pod alone (KEP-1669 sends it to terminating pods that are
// still ready); there is no other on the node.
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
	l.containers(func(c *corev1.Container, _ string) {
		d, isLoop := sleeps(preStop(c))
		if h := preStop(c); isLoop || h != nil && d == 0 { // a hook whose time nobody knows
			d = noticed
		}
		stays = max(stays, d)
	})
	if stays >= noticed {
		return nil
	}
	return []Finding{{"LC016", Warning, "spec.externalTrafficPolicy", fmt.Sprintf(
		"Local sends to a node until its health check has failed, %v at least, and its pods stay for %v: what comes between is refused; write Cluster, or let them stay longer (MINIMUM_DRAIN_DURATION, preStop sleep)", noticed, stays)}}
}
