package lint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// examineWorkload applies the rules of a pod alone, and those that need the rest of the input.
func (e *examination) examineWorkload(w *workload) {
	for _, s := range w.services() {
		w.targets = append(w.targets, pod.Targets(&s.Service)...)
	}
	if !w.examine() {
		w.unprotected()
		w.sidecarEndsFirst()
		w.ignoredExitOnZero()
	}
	for _, c := range pod.Each(w.Pod.Spec.Containers) {
		if w.IsKnative() && pod.HookOf(c) != nil {
			w.find("LC007", Error, "spec.containers["+c.Name+"].lifecycle", "is refused: %s", pod.KnativeNote)
		}
	}
	for _, s := range w.Strays() {
		w.findings = append(w.findings, Finding{ID: "LC007", Severity: Warning, Path: s.Path, Text: s.Text, isOfObject: true})
	}
	w.aboveTemplate()
	e.found(w.Object, w.String(), w, w.findings...)
}

// aboveTemplate: annotations and labels of a pod's end that the workload has, and its pods do not.
func (w *workload) aboveTemplate() {
	known := slices.Concat(inject.Keys(), meshTimers, []string{meshconfig.AnnotationConfig})
	check := func(place string, above, below map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(above)) {
			if _, isSet := below[name]; !isSet && len(w.Path) > 0 && slices.Contains(known, name) {
				w.findings = append(w.findings, Finding{ID: "LC007", Severity: Warning, isOfObject: true,
					Path: "metadata." + place + "[" + name + "]",
					Text: "has no effect here: it belongs to the pods, " + strings.Join(w.Path, ".") + ".metadata." + place})
			}
		}
	}
	check("labels", w.Object.Labels, w.Pod.Labels)
	check("annotations", w.Object.Annotations, w.Pod.Annotations)
}

// isForRequests reports whether users' requests reach the Service.
func (s *service) isForRequests() bool {
	return pod.IsForRequests(s.Name) && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Protocol != corev1.ProtocolUDP && pod.IsForRequests(p.Name)
	})
}

// ownDelay are parts of arguments and variables by which servers delay or drain their end themselves.
var ownDelay = []string{
	"drain", "lameduck", "graceful", "shutdown", "grace-period", "termination", "wait-for-healthcheck",
	"requestacceptgracetimeout", "hard-stop-after", "lifecycle",
}

// ownDelayImages are parts of the names of images whose programs accept connections for some seconds after SIGTERM by
// default.
var ownDelayImages = []string{
	"knative.dev/",           // 45 s (knative.dev/pkg/network: DefaultDrainTimeout)
	"/skipper:",              // 45 s (wait-for-healthcheck-interval)
	"argoproj/rollouts-demo", // 10 s (termination-delay)
	"stefanprodan/podinfo",   // 3 s (pkg/signals)
}

// finishing matches the settings with which frameworks finish requests, and accept no new ones meanwhile.
var finishing = regexp.MustCompile(`^(?:--?d?)?(?:server[-.]shutdown|spring[-.]lifecycle|quarkus[-.]shutdown[-.]timeout|` +
	`(?:aspnetcore|dotnet)-shutdowntimeout)`)

// delaysItself reports whether a container has a setting or default of its own for its end.
func delaysItself(c *corev1.Container) bool {
	if _, source := pod.StopSignal(c); source == pod.FromLifecycle ||
		slices.ContainsFunc(ownDelayImages, func(part string) bool { return strings.Contains(c.Image, part) }) {
		return true
	}
	var all []string
	for _, arg := range slices.Concat(c.Command, c.Args) {
		all = append(all, strings.Fields(arg)...)
	}
	for _, e := range c.Env {
		all = append(all, e.Name)
	}
	return slices.ContainsFunc(all, func(word string) bool {
		word = strings.ToLower(strings.ReplaceAll(word, "_", "-"))
		isPart := func(part string) bool { return strings.Contains(word, part) }
		return slices.ContainsFunc(ownDelay, isPart) && !finishing.MatchString(word)
	})
}

// unprotected: at SIGTERM most servers close their listener at once, and new connections still arrive until all proxies
// and load balancers know of it.
func (w *workload) unprotected() {
	if !w.IsRolled() && len(w.scaled) == 0 || w.isRecreated || w.replicas == 0 && len(w.scaled) == 0 ||
		w.end.HasLastcall || w.end.HasProxy() || w.end.Mesh == pod.MeshAmbient || w.settings.MinimumDrain.IsSet() {
		return
	}
	for _, s := range w.services() {
		serves, _ := pod.Serves(&w.Pod.Spec, pod.Targets(&s.Service))
		for _, c := range serves {
			hook := pod.ReadHook(&w.Pod.Spec, c) // other rules report one that stops the app or fails
			if hook.Stops || hook.Failure() != "" || staysFor(hook, c) > 0 || pod.IsIdle(c) {
				continue
			}
			lacks := "has no preStop hook"
			if hook.Kind != podend.NoHook {
				lacks = "has a preStop that does not wait"
			}
			w.find("LC019", Warning, "spec.containers["+c.Name+"]",
				lacks+" and no sidecar, and Service %s sends it requests: "+
					"an app that exits at SIGTERM refuses the connections of clients that still have its address; "+
					"add lifecycle: {preStop: {sleep: {seconds: 5}}}%s (%s)", s.Name, w.unlessUnfit(", or lastcall"), w.count())
			return
		}
	}
}

// unlessUnfit is advice to use lastcall, empty for a pod that cannot be injected.
func (l *linting) unlessUnfit(advice string) string {
	if inject.Unfit(l.pod) != "" {
		return ""
	}
	return advice
}

// count is the number of the pods that end at a rollout, or otherwise.
func (w *workload) count() string {
	if len(w.scaled) > 0 && w.replicas == 0 {
		return strings.Join(w.scaled, ", ")
	}
	return strings.Join(append([]string{terminal.Count(w.replicas, "replica")}, w.scaled...), ", ")
}

// sidecarEndsFirst: the kubelet runs an app's preStop hook and sends SIGTERM to a classic sidecar at the same time.
func (w *workload) sidecarEndsFirst() {
	if w.end.HasLastcall {
		return
	}
	hook, app := time.Duration(0), ""
	for _, c := range w.end.Containers {
		if c.Role == podend.App && c.Hook.Duration > hook {
			hook, app = c.Hook.Duration, c.Name
		}
	}
	for _, c := range w.end.Containers {
		if c.Role != podend.Proxy || c.Native {
			continue
		}
		where := "spec.containers[" + app + "].lifecycle.preStop"
		switch serves := c.Hook.Duration + c.Drain; {
		case c.Reaction == podend.FixedDrain && w.end.Mesh == pod.MeshIstio && hook > serves && c.Hook.IsKnown:
			w.find("LC020", Warning, where,
				"waits for %v, but Istio's classic sidecar ends after %v (terminationDrainDuration): "+
					"then the app can neither be reached nor reach others; "+
					"set terminationDrainDuration above %v in the annotation proxy.istio.io/config, or use a native sidecar",
				hook, serves, hook)
		case c.Reaction == podend.Refuses && hook > c.Hook.Duration && c.Hook.IsKnown:
			w.find("LC020", Warning, where,
				"waits for %v, but linkerd's classic proxy refuses new connections after %v: "+
					"set the annotation config.alpha.linkerd.io/proxy-wait-before-exit-seconds to %d, or use a native sidecar",
				hook, c.Hook.Duration, int(hook.Seconds()))
		}
	}
}

// ignoredExitOnZero: a native sidecar of Istio exits at its SIGTERM, which follows the app's end, whatever is open.
func (w *workload) ignoredExitOnZero() {
	s := w.settings
	isFromMesh := s.ExitOnZero.Source.Origin == meshconfig.MeshFile
	isWrong := slices.ContainsFunc(w.findings, func(f Finding) bool {
		return f.ID == "LC007" && strings.Contains(f.Path, meshconfig.AnnotationConfig)
	})
	if w.end.HasLastcall || w.end.Mesh != pod.MeshIstio || w.job ||
		!s.ExitOnZero.IsSet() || !s.ExitOnZero.Value || isFromMesh || isWrong {
		return // the annotation means something else when it is right
	}
	isNativeProxy := func(c termination.Container) bool { return c.Role == podend.Proxy && c.Native }
	if slices.ContainsFunc(w.end.Containers, isNativeProxy) {
		w.find("LC005", Warning, "metadata.annotations[proxy.istio.io/config].proxyMetadata."+meshconfig.VariableExitOnZero,
			"%s; set the annotation sidecar.istio.io/nativeSidecar to \"false\" and give the app "+
				"a preStop sleep, or use lastcall",
			ignoredByNative)
	}
}

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
							"and the pods accept them for %v: %s a preStop sleep%s of %v, and a longer terminationGracePeriodSeconds",
						what, w.stays(), remedy, w.unlessUnfit(" or lastcall.dev/minimum-drain"), b.Notices)})
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
	case !hook.IsKnown, hook.Failure() == "" && reaction == podend.Unsure && delaysItself(c):
		return pod.Forever
	}
	return 0
}
