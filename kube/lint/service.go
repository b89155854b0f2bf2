package lint

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// examineBalancer compares the times of a load balancer with those of the pods behind it.
func (e *examination) examineBalancer(b manifest.Balancer) {
	what, remedy := b.Value+": "+b.Name, "set"
	if b.Name == b.Value {
		what, remedy = b.Name, "use Cluster, or set"
	}
	isService := b.Is("", "Service")
	if !isService {
		e.result.Examined++
	}
	for _, name := range b.Services {
		for _, s := range e.called[[2]string{b.Namespace, name}] {
			if isService && s.object != b.Object || !areNear(s.object, b.Object) {
				continue
			}
			if w := s.backends.leavesBefore(b.Notices); w != nil {
				e.found(b.Object, b.Object.String()+" over "+w.String(), nil, Finding{
					ID: "LC016", Severity: Warning, Path: b.Field, Text: fmt.Sprintf(
						"%s sends new connections to a pod until it has learned of its end, "+
							"and the pods accept them for %v: %s a preStop sleep or lastcall.dev/minimum-drain of %v, "+
							"and a longer terminationGracePeriodSeconds",
						what, w.stays(), remedy, b.Notices)})
				return // the same for each
			}
		}
	}
}

// stays is the time for which a pod accepts connections after its deletion; with a hook or a setting of its own, whose
// duration is unknown, as long as any load balancer needs.
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
		return pod.Forever
	}
	return 0
}
