package lint

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/meshconfig"
)

// Severity says how bad it is.
type Severity string

const (
	Error   Severity = "error"   // the end of the pod cannot go as written
	Warning Severity = "warning" // it works otherwise than its author thinks, or only by luck
)

// Finding is one thing that is wrong.
type Finding struct {
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`

	// Path is the field, from the pod's metadata or spec on.
	Path string `json:"path"`

	// Text says what happens and what to write instead, in one sentence.
	Text string `json:"text"`
}

func (f Finding) String() string { return fmt.Sprintf("%s %s: %s", f.ID, f.Path, f.Text) }

// Input is a pod and what its proxy would go by.
type Input struct {
	Pod *corev1.Pod

	// Job says that the pod is expected to end by itself.
	Job bool

	// Settings are resolved from the pod's annotations and the mesh config; Err is
	// what was wrong with them, of which Settings then have the default.
	Settings *meshconfig.Settings
	Err      error
}

// linting is one pod under examination.
type linting struct {
	Input
	grace    time.Duration
	findings []Finding
}

// rules in the order of their IDs.
var rules = []func(*linting){
	(*linting).preStopSleeps, (*linting).budget, (*linting).drains, (*linting).terminationDrain, (*linting).exitOnZero,
	(*linting).misplaced, (*linting).hooksWithoutShell, (*linting).nativeIstio, (*linting).readiness, (*linting).otherMeshes,
	(*linting).skipper, (*linting).spot, (*linting).loops, (*linting).stopSignals, (*linting).sidecarForm,
}

// Pod examines one pod. A grace period of 0 leaves nothing else to say.
func Pod(in Input) []Finding {
	l := &linting{Input: in, grace: corev1.DefaultTerminationGracePeriodSeconds * time.Second}
	if s := in.Pod.Spec.TerminationGracePeriodSeconds; s != nil {
		if *s <= 0 {
			l.find("LC014", Warning, "spec.terminationGracePeriodSeconds", "%d: the pod is killed at once and every request in it is lost; write how long its longest request takes, and 10 s", *s)
			return l.findings
		}
		l.grace = time.Duration(min(*s, 1<<31)) * time.Second
	}
	for _, rule := range rules {
		rule(l)
	}
	return l.findings
}

func (l *linting) find(id string, severity Severity, path, format string, args ...any) {
	l.findings = append(l.findings, Finding{id, severity, path, fmt.Sprintf(format, args...)})
}

// containers calls f for each container with its path.
func (l *linting) containers(f func(c *corev1.Container, path string)) {
	for i := range l.Pod.Spec.InitContainers {
		c := &l.Pod.Spec.InitContainers[i]
		f(c, "spec.initContainers["+c.Name+"]")
	}
	for i := range l.Pod.Spec.Containers {
		c := &l.Pod.Spec.Containers[i]
		f(c, "spec.containers["+c.Name+"]")
	}
}

func preStop(c *corev1.Container) *corev1.LifecycleHandler {
	if c.Lifecycle == nil {
		return nil
	}
	return c.Lifecycle.PreStop
}
