// Package lint finds timers in a pod's manifest that cannot work together when the pod stops. Pod is a pure function:
// manifest and settings in, findings out, in the order of the rules. Every rule has an ID that never changes, and
// describes the consequence and the remedy. Rules and docs/lint.md list them.
package lint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Severity is the consequence of a finding.
type Severity string

const (
	Error   Severity = "error"   // the pod cannot end as written
	Warning Severity = "warning" // it works differently from what its author probably expects, or only by luck
)

// FailOn lists the severities from which on Result.Fails can return true, the default first.
func FailOn() []string { return []string{string(Error), string(Warning), "never"} }

// Finding is one problem.
type Finding struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`

	Path       string `json:"path"` // the field, starting at the pod's metadata or spec
	Text       string `json:"text"` // the consequence and the remedy, in one sentence
	isOfObject bool   // Path starts at the object's root
}

func (f Finding) String() string { return fmt.Sprintf("%s %s: %s", f.ID, f.Path, f.Text) }

// linting is one pod under examination.
type linting struct {
	pod     *corev1.Pod
	job     bool                 // it is expected to end by itself
	targets []intstr.IntOrString // of the Services that send it requests
	accepts *time.Duration       // see stays

	// settings are resolved from the pod's annotations and the mesh config. err is the error of doing so; wrong
	// settings have their default then.
	settings   *meshconfig.Settings
	err        error
	configured string                   // the path of the container with the settings; empty if there is none
	end        *termination.Termination // of the pod as injected

	grace     time.Duration
	isKnative bool
	expansion manifest.Expansion
	expanded  []located
	findings  []Finding
}

func newLinting(p *corev1.Pod, job bool, o termination.Options) *linting {
	l := &linting{pod: p, job: job, grace: pod.GraceOf(&p.Spec), end: termination.Of(p, o)}
	if l.isKnative = o.Knative; l.isKnative {
		l.pod = pod.Knative(p)
	}
	var agent *corev1.Container
	l.containers(func(c *corev1.Container, path string) {
		_, isAgent := pod.AgentArguments(c)
		flags, _ := pod.WaitFlags(pod.HookOf(c))
		_, isLibrary := pod.Variable(c, meshconfig.VariableMinimumDrain)
		isApp := (pod.HasNoAgent(flags) || isLibrary) && !pod.IsProxy(&p.Spec, c) && !isIstios(c)
		if isAgent || agent == nil && isApp {
			agent, l.configured = c, path
		}
	})
	l.settings, l.err = inject.SettingsOf(o.MeshConfig, p.Annotations, agent)
	return l
}

// located is a container, as its kubelet starts it, with its path.
type located struct {
	corev1.Container
	path string
}

// rules in the order of their IDs.
var rules = []func(*linting){
	each((*linting).preStopSleeps), (*linting).budget, (*linting).drains, (*linting).exitOnZero,
	(*linting).misplaced, each((*linting).hooksWithoutShell), (*linting).nativeIstio, (*linting).otherMeshes,
	each((*linting).loops), each((*linting).sidecarForm), each((*linting).front),
	each((*linting).stopsItself), (*linting).dependence, each((*linting).reloads), each((*linting).ownTimers),
	(*linting).neverEnds, (*linting).asksInVain,
}

// each applies a rule to each container.
func each(rule func(l *linting, c *corev1.Container, path string)) func(*linting) {
	return func(l *linting) {
		l.containers(func(c *corev1.Container, path string) { rule(l, c, path) })
	}
}

// Pod examines one pod. job is true if it is expected to end by itself; meshConfig is the text of Istio's MeshConfig.
func Pod(pod *corev1.Pod, job bool, meshConfig string) []Finding {
	l := newLinting(pod, job, termination.Options{MeshConfig: meshConfig})
	l.examine()
	return l.findings
}

// examine applies the rules of a pod alone. A grace period of 0 is the only finding, and isKilled.
func (l *linting) examine() (isKilled bool) {
	if s := l.pod.Spec.TerminationGracePeriodSeconds; s != nil && *s <= 0 {
		serves := slices.ContainsFunc(pod.Containers(&l.pod.Spec), pod.HasRequests)
		if serves || l.hasLastcall() { // a pod that only calls others is often killed on purpose
			l.find("LC014", Warning, "spec.terminationGracePeriodSeconds",
				"%d: the pod is killed at once and all its requests are lost; "+
					"set it to the duration of the longest request plus 10 s", *s)
		}
		return len(l.findings) > 0
	}
	for _, rule := range rules {
		rule(l)
	}
	return false
}

func (l *linting) find(id string, severity Severity, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if l.isKnative { // Knative refuses the pod's own field
		const own, its = "terminationGracePeriodSeconds", "timeoutSeconds"
		path, text = strings.ReplaceAll(path, own, its), strings.ReplaceAll(text, own, its)
	}
	l.findings = append(l.findings, Finding{ID: id, Severity: severity, Path: path, Text: text})
}

// containers calls f for each container with its path.
func (l *linting) containers(f func(c *corev1.Container, path string)) {
	if l.expanded == nil { // for the first rule of many
		for _, c := range l.pod.Spec.InitContainers {
			l.expanded = append(l.expanded, located{l.expansion.Container(c), "spec.initContainers[" + c.Name + "]"})
		}
		for _, c := range l.pod.Spec.Containers {
			l.expanded = append(l.expanded, located{l.expansion.Container(c), "spec.containers[" + c.Name + "]"})
		}
	}
	for i := range l.expanded {
		f(&l.expanded[i].Container, l.expanded[i].path)
	}
}

// hasLastcall reports whether the pod has lastcall, or asks for it.
func (l *linting) hasLastcall() bool {
	return l.end.HasLastcall || l.asks()
}

// asks reports whether the pod asks for lastcall's injection.
func (l *linting) asks() bool {
	return l.pod.Labels[inject.AnnotationInject] == "true" || l.pod.Annotations[inject.AnnotationInject] == "true"
}

// ownHook is a container's preStop hook, unless lastcall's replaces it.
func (l *linting) ownHook(c *corev1.Container) pod.Hook {
	if l.hasLastcall() && inject.JoinOf(l.pod, c).Merge == inject.MergeReplaces {
		return pod.Hook{}
	}
	return pod.ReadHook(&l.pod.Spec, c)
}

// Rule is one kind of problem.
type Rule struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Home is the project's page.
const Home = "https://github.com/lastcall-dev/lastcall"

// Page is the address of the rule's page, with an example.
func (r Rule) Page() string { return Home + "/blob/main/docs/rules/" + r.ID + ".md" }

// Rules lists all rules in the order of their IDs. The ID of a removed rule is not used again: comments in manifests
// may still contain it.
func Rules() []Rule {
	return []Rule{
		{"LC000", "a manifest that is not readable"},
		{"LC001", "a preStop that sleeps as long as the grace period or longer"},
		{"LC002", "preStop, minimum drain and last call together take longer than the grace period"},
		{"LC003", "a drain that is set to last longer than the grace period"},
		{"LC005", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS where it is not read"},
		{"LC007", "settings that are misplaced, misspelt or wrong"},
		{"LC008", "a hook that fails at once, because it cannot run"},
		{"LC009", "a native istio-proxy whose preStop has been replaced"},
		{"LC011", "another mesh's timer that is longer than the grace period"},
		{"LC014", "a grace period of 0"},
		{"LC015", "a preStop loop without a time limit"},
		{"LC016", "pods that exit before their load balancer has learned of it"},
		{"LC018", "a lastcall sidecar that cannot distinguish a container's restart from the end of the pod"},
		{"LC019", "a Service's pods without any preStop hook or sidecar"},
		{"LC020", "a sidecar that ends before the app's preStop hook"},
		{"LC029", "a shell or a package manager that does not pass SIGTERM on"},
		{"LC035", "a preStop that ends the app before clients have learned of it"},
		{"LC036", "a container that ends before another one that passes requests to it"},
		{"LC037", "a server that reloads at its stop signal"},
		{"LC038", "a server's own timer that exceeds the rest of the grace period"},
		{"LC039", "a Job's helper that does not exit"},
	}
}
