package plan

import (
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Advice is the smallest timers with which a pod's end loses no request. All are whole seconds.
type Advice struct {
	Lastcall bool          // lastcall waits; otherwise a preStop sleep
	Wait     time.Duration // the preStop sleep, or lastcall's minimum drain
	Grace    time.Duration // terminationGracePeriodSeconds

	Pod      *corev1.Pod // with these timers
	lastCall time.Duration
}

// Advise computes the timers of a pod. A request that arrives when the last client learns of the end, and takes as long
// as the longest, must be answered. The error is that the pod ends otherwise.
func Advise(pod *corev1.Pod, lastcall bool, o Options) (*Advice, error) {
	end := o.Propagation + o.Request
	a := &Advice{Lastcall: lastcall, Wait: podend.WholeSeconds(o.Propagation)}
	if !lastcall && o.appExits() {
		a.Wait = podend.WholeSeconds(end)
	}
	least := podend.Grace(max(end, a.Wait))
	// Only the part of the grace period that lastcall keeps grows with it.
	var c podend.Course
	for a.Grace = least; a.Grace <= 2*least+podend.Spare; a.Grace += time.Second {
		a.Pod = a.apply(pod)
		t := termination.Of(a.Pod, o.Options)
		a.lastCall = t.LastCall
		if c = t.Course(podend.Traffic{Busy: end, Last: o.Propagation}); c.Accepts >= o.Propagation && c.Cut >= end {
			return a, nil
		}
	}
	return nil, fmt.Errorf("with a wait of %s no grace period suffices: requests in flight are ended after %s: %s",
		terminal.Seconds(a.Wait), terminal.Seconds(c.Cut), c.CutBy)
}

// appExits reports whether the app ends requests in flight at its stop signal.
func (o Options) appExits() bool { return o.App == podend.Exits || o.App == "" }

// apply is the pod with these timers.
func (a *Advice) apply(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Spec.TerminationGracePeriodSeconds = new(int64(a.Grace / time.Second))
	if a.Lastcall {
		metav1.SetMetaDataLabel(&p.ObjectMeta, inject.AnnotationInject, "true")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, "lastcall.dev/pre-stop", "replace")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, pod.AnnotationMinimumDrain, a.Wait.String())
		return p
	}
	delete(p.Labels, inject.AnnotationInject)
	for _, c := range pod.Each(p.Spec.Containers) {
		var sleep *corev1.LifecycleHandler
		if a.Wait > 0 {
			sleep = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(a.Wait / time.Second)}}
		}
		pod.SetHook(c, sleep)
	}
	return p
}

// Why is the reasoning, one sentence each.
func (a *Advice) Why(o Options) []string {
	wait := fmt.Sprintf("wait: clients still connect for up to %s after the deletion", terminal.Seconds(o.Propagation))
	grace := fmt.Sprintf("grace period: a request that arrives then takes up to %s", terminal.Seconds(o.Request))
	if a.Lastcall {
		return []string{wait,
			fmt.Sprintf("%s, and the last call comes %s before SIGKILL", grace, terminal.Seconds(a.Grace-a.lastCall)),
			fmt.Sprintf("quiet time: its default of %s extends the wait for clients that learn later than stated",
				terminal.Seconds(drain.DefaultQuietTime))}
	}
	if o.appExits() {
		wait += fmt.Sprintf(", and the app, which exits at its stop signal, must have answered requests of up to %s by then",
			terminal.Seconds(o.Request))
	}
	return []string{wait, fmt.Sprintf("%s, and SIGKILL comes no sooner than %s after that and after the sleep",
		grace, terminal.Seconds(podend.Spare))}
}

// Patch is a patch of a Deployment in kubectl's strategic form.
func (a *Advice) Patch() string {
	var b strings.Builder
	b.WriteString("spec:\n  template:\n")
	if a.Lastcall {
		fmt.Fprintf(&b, "    metadata:\n      labels: {lastcall.dev/inject: \"true\"}\n      annotations:\n"+
			"        lastcall.dev/pre-stop: replace\n        %s: %v\n", pod.AnnotationMinimumDrain, a.Wait)
	}
	fmt.Fprintf(&b, "    spec:\n      terminationGracePeriodSeconds: %d\n", int(a.Grace.Seconds()))
	if !a.Lastcall && a.Wait > 0 {
		b.WriteString("      containers:\n")
		for _, c := range a.Pod.Spec.Containers {
			fmt.Fprintf(&b, "      - name: %s\n        lifecycle: {preStop: {sleep: {seconds: %d}}}\n",
				terminal.Printable(c.Name), int(a.Wait.Seconds()))
		}
	}
	return b.String()
}

// headline names the timers.
func (a *Advice) headline() string {
	wait := "preStop sleep"
	if a.Lastcall {
		wait = "lastcall: " + pod.AnnotationMinimumDrain
	}
	return fmt.Sprintf("With %s %v, terminationGracePeriodSeconds %d", wait, a.Wait, int(a.Grace.Seconds()))
}

// WriteAdvice prints the timers for a workload's pods, with a sleep and with lastcall. isFound is false if no timers
// suffice.
func WriteAdvice(w io.Writer, name string, pod *corev1.Pod, o Options) (isFound bool, err error) {
	var b strings.Builder
	if termination.Of(pod, o.Options).Course(podend.Traffic{}).Refusal == podend.NoClients { // a worker
		o.Propagation = 0
	}
	fmt.Fprintf(&b, "%s: requests take up to %s, clients connect for up to %s after the deletion\n",
		terminal.Printable(name), terminal.Seconds(o.Request), terminal.Seconds(o.Propagation))
	for _, lastcall := range []bool{false, true} {
		b.WriteByte('\n')
		a, err := Advise(pod, lastcall, o)
		if err != nil {
			wrap(&b, map[bool]string{false: "preStop sleep: ", true: "lastcall: "}[lastcall], err.Error())
			continue
		}
		isFound = true
		b.WriteString(a.headline() + "\n")
		for _, text := range a.Why(o) {
			wrap(&b, "  - ", text)
		}
		for line := range strings.Lines(a.Patch()) {
			b.WriteString("    " + line)
		}
	}
	_, err = io.WriteString(w, b.String())
	return isFound, err
}
