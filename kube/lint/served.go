package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// examineWorkload applies the rules of a pod alone, and those that need the rest of the input.
func (e *examination) examineWorkload(w *workload) {
	findings := Pod(w.in)
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.ID == "LC014" }) {
		e.found(w.object, w.String(), w.below(), findings...)
		return
	}
	l := &linting{Input: w.in, grace: w.end.GracePeriod(), findings: findings}
	w.unprotected(l)
	w.sidecarEndsFirst(l)
	w.ignoredExitOnZero(l)
	w.languageModel(l)
	e.found(w.object, w.String(), w.below(), l.findings...)
	e.found(w.object, w.String(), "", misspeltFields(w.object)...)
	e.found(w.object, w.String(), "", w.rollout()...)
}

// servedBy is the Service that sends users' requests to the workload; nil if there is none.
func (w *workload) servedBy() *service {
	if i := slices.IndexFunc(w.services, (*service).isForRequests); i >= 0 {
		return w.services[i]
	}
	return nil
}

// isForRequests reports whether users' requests reach the Service.
func (s *service) isForRequests() bool {
	return isForRequests(s.Name) && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Protocol != corev1.ProtocolUDP && isForRequests(p.Name) })
}

// ownDelay are parts of arguments and variables by which servers delay or drain their end themselves.
var ownDelay = []string{"drain", "lameduck", "graceful", "shutdown", "grace-period", "termination", "wait-for-healthcheck", "requestacceptgracetimeout", "hard-stop-after", "lifecycle"}

// ownDelayImages are parts of the names of images whose programs accept connections for some seconds after SIGTERM by default.
var ownDelayImages = []string{
	"knative.dev/",           // 45 s (knative.dev/pkg/network: DefaultDrainTimeout)
	"/skipper:",              // 45 s (wait-for-healthcheck-interval)
	"argoproj/rollouts-demo", // 10 s (termination-delay)
	"stefanprodan/podinfo",   // 3 s (pkg/signals)
}

// delaysItself reports whether a container has a hook, or a setting or default of its own for its end.
func delaysItself(c *corev1.Container) bool {
	if preStop(c) != nil || c.Lifecycle != nil && c.Lifecycle.StopSignal != nil ||
		slices.ContainsFunc(ownDelayImages, func(part string) bool { return strings.Contains(c.Image, part) }) {
		return true
	}
	all := words(c)
	for _, e := range c.Env {
		all = append(all, e.Name)
	}
	return slices.ContainsFunc(all, func(word string) bool {
		word = strings.ToLower(strings.ReplaceAll(word, "_", "-"))
		return slices.ContainsFunc(ownDelay, func(part string) bool { return strings.Contains(word, part) })
	})
}

// rolled are the kinds whose pods are replaced one after the other, while others serve.
var rolled = []string{"Deployment", "Rollout", "ReplicaSet", "DeploymentConfig", "ReplicationController"}

// unprotected: at SIGTERM most servers close their listener at once, and new connections still arrive until all proxies
// and load balancers know of it.
func (w *workload) unprotected(l *linting) {
	s := w.servedBy()
	if s == nil || !slices.Contains(rolled, w.Kind) || w.isRecreated || w.replicas == nil || *w.replicas < 2 && !w.isBudgeted { // a sample, mostly
		return
	}
	if d, isKnown := w.stays(); d > 0 || !isKnown || slices.ContainsFunc(w.Pod.Spec.Containers, func(c corev1.Container) bool { return delaysItself(&c) }) {
		return
	}
	l.find("LC019", Warning, "spec.containers["+w.Pod.Spec.Containers[0].Name+"]", "has no preStop hook and no sidecar, and Service %s sends it requests: an app that exits at SIGTERM refuses the connections of clients that still have its address; add lifecycle: {preStop: {sleep: {seconds: 5}}}, or lastcall", s.Name)
	l.fix("spec.containers["+w.Pod.Spec.Containers[0].Name+"].lifecycle", "{preStop: {sleep: {seconds: 5}}}")
}

// sidecarEndsFirst: the kubelet runs an app's preStop hook and sends SIGTERM to a classic sidecar at the same time.
func (w *workload) sidecarEndsFirst(l *linting) {
	if w.end.Lastcall {
		return
	}
	hook, app := time.Duration(0), ""
	for _, c := range w.end.Containers {
		if c.Role == termination.App && c.PreStop.Duration > hook {
			hook, app = c.PreStop.Duration, c.Name
		}
	}
	for _, c := range w.end.Containers {
		if c.Role != termination.Proxy || c.Native {
			continue
		}
		where := "spec.containers[" + app + "].lifecycle.preStop"
		switch serves := c.PreStop.Duration + c.Drain; {
		case c.Reaction == termination.FixedDrain && w.end.Mesh == carrier.MeshIstio && hook > serves && c.PreStop.IsKnown:
			l.find("LC020", Warning, where, "waits for %v, but Istio's classic sidecar ends after %v (terminationDrainDuration): then the app can neither be reached nor reach others; set terminationDrainDuration above %v in the annotation proxy.istio.io/config, or use a native sidecar", hook, serves, hook)
		case c.Reaction == termination.Refuses && hook > c.PreStop.Duration && c.PreStop.IsKnown:
			l.find("LC020", Warning, where, "waits for %v, but linkerd's classic proxy refuses new connections after %v: set the annotation config.alpha.linkerd.io/proxy-wait-before-exit-seconds to %d, or use a native sidecar", hook, c.PreStop.Duration, int(hook.Seconds()))
		}
	}
}

// ignoredExitOnZero: a native sidecar of Istio exits at its SIGTERM, which follows the app's end, whatever is open.
func (w *workload) ignoredExitOnZero(l *linting) {
	s := w.in.Settings
	if w.end.Lastcall || w.end.Mesh != carrier.MeshIstio || w.in.Job || !s.ExitOnZero.IsSet() || !s.ExitOnZero.Value || s.ExitOnZero.Source.Origin == meshconfig.MeshFile ||
		slices.ContainsFunc(l.findings, func(f Finding) bool { return f.ID == "LC007" }) { // the annotation means something else when it is right
		return
	}
	if slices.ContainsFunc(w.end.Containers, func(c termination.Container) bool { return c.Role == termination.Proxy && c.Native }) {
		l.find("LC005", Warning, "metadata.annotations[proxy.istio.io/config].proxyMetadata."+exitOnZeroName, "%s; set the annotation sidecar.istio.io/nativeSidecar to \"false\" and give the app a preStop sleep, or use lastcall", ignoredByNative)
	}
}

// models are parts of the names of images that serve language models, and what they are called.
var models = []struct{ image, name string }{
	{"vllm/vllm-openai", "vLLM"}, {"vllm-openai", "vLLM"}, {"/vllm:", "vLLM"}, {"text-generation-inference", "TGI"}, {"lmsysorg/sglang", "SGLang"}, {"tritonserver", "Triton"},
	{"ollama/ollama", "Ollama"}, {"ggml-org/llama.cpp", "llama.cpp"}, {"nvcr.io/nim/", "NIM"}, {"ghcr.io/predibase/lorax", "LoRAX"},
}

// minutes is the shortest grace period that covers a usual generation: 60 s (1,500 tokens at 25 tokens/s).
const minutes = 60 * time.Second

func (w *workload) languageModel(l *linting) {
	if w.Pod.Spec.TerminationGracePeriodSeconds != nil && w.end.GracePeriod() >= minutes || w.in.Job || w.IsKnative() {
		return
	}
	for i := range w.Pod.Spec.Containers {
		c := &w.Pod.Spec.Containers[i]
		for _, m := range models {
			if strings.Contains(c.Image, m.image) && !strings.Contains(strings.Join(words(c), " "), "sleep infinity") {
				l.find("LC027", Warning, "spec.terminationGracePeriodSeconds", "is %v, but container %s is %s, whose answers take a minute and more: those in flight are cut; set it to the time of the longest answer plus 10 s", w.end.GracePeriod(), c.Name, m.name)
				l.fixGrace(5*minutes + appsOwn)
				return
			}
		}
	}
}

// rollout: how the pods of a Deployment replace each other.
func (w *workload) rollout() []Finding {
	var d struct {
		Spec struct {
			apps.DeploymentSpec
			PodReplacementPolicy string `json:"podReplacementPolicy"`
		} `json:"spec"`
	}
	if w.Kind != "Deployment" || w.object.Decode(&d) != nil {
		return nil
	}
	var all []Finding
	progress := int32(600) // the default of progressDeadlineSeconds
	if p := d.Spec.ProgressDeadlineSeconds; p != nil {
		progress = *p
	}
	if d.Spec.PodReplacementPolicy == "TerminationComplete" && w.end.GracePeriod() >= time.Duration(progress)*time.Second {
		all = append(all, Finding{ID: "LC024", Severity: Warning, Path: "spec.podReplacementPolicy", Text: fmt.Sprintf(
			"TerminationComplete waits for the end of each old pod, up to %v, and progressDeadlineSeconds is %d: a rollout is reported as failed; raise progressDeadlineSeconds above the grace period", w.end.GracePeriod(), progress)})
	}
	replicas := int32(1)
	if w.replicas != nil {
		replicas = *w.replicas
	}
	update := d.Spec.Strategy.RollingUpdate
	if update == nil || update.MaxUnavailable == nil || replicas == 0 || w.servedBy() == nil {
		return all
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(update.MaxUnavailable, int(replicas), false)
	if err == nil && n >= int(replicas) {
		all = append(all, Finding{ID: "LC028", Severity: Warning, Path: "spec.strategy.rollingUpdate.maxUnavailable", Text: fmt.Sprintf(
			"%s of %d replicas: a rollout stops every pod before a new one is ready, and no pod serves in between; set maxUnavailable: 0 and maxSurge: 1", update.MaxUnavailable, replicas)})
	}
	return all
}
