package inject

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/capture"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// injection is the state of injecting one pod.
type injection struct {
	Options
	pod      *corev1.Pod
	settings *meshconfig.Settings
	env      environment
	proxy    Proxy
	sidecar  Sidecar
	capture  Capture
	token    string
	notes    []string
	until    []string  // the signals of the worker
	watched  []watched // ports by annotation, for hooks without an agent
	joins    map[*corev1.LifecycleHandler]Join
	ports    map[[2]string]int32 // by container, or none, and name, the first of each; computed on demand
}

// maxNotes limits the notes of a pod: all its annotations together may have 256 KiB.
const maxNotes = 20

func (j *injection) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(text) > maxNote {
		text = strings.ToValidUTF8(text[:maxNote], "") + "…"
	}
	if len(j.notes) < maxNotes && !slices.Contains(j.notes, text) {
		j.notes = append(j.notes, text)
	}
}

// maxNote limits one note, in bytes: it may quote the pod.
const maxNote = 500

// unableError is the reason why a valid request of a pod is not possible.
type unableError struct{ reason string }

func (e unableError) Error() string { return e.reason }

// Pod returns an injected copy of pod, and the result. It does not change its argument, and the same arguments give the
// same result.
func Pod(p *corev1.Pod, o Options) (*corev1.Pod, Result) {
	isEnabled, why, err := enabled(p, o)
	switch {
	case err != nil:
		return leave(p, err)
	case !isEnabled:
		return p.DeepCopy(), Result{Outcome: NotRequested, Reason: why}
	}
	if reason := Unfit(p); reason != "" {
		return leave(p, unableError{reason})
	}
	j := &injection{Options: o, pod: p.DeepCopy(), joins: map[*corev1.LifecycleHandler]Join{}}
	if j.pod.Annotations == nil {
		j.pod.Annotations = map[string]string{}
	}
	if pod.IsOurs(j.pod) && isRedirectedTwice(j.pod) {
		if err := j.withdraw(); err != nil {
			return leave(p, err)
		}
		p = j.pod.DeepCopy() // left alone without the sidecar
		delete(p.Labels, LabelInjected)
	}
	if o.Offline && pod.IsOurs(j.pod) {
		j.renewImages()
	}
	if pod.Find(&p.Spec, pod.Sidecar) == nil { // of a manifest that was copied from an injected pod
		delete(j.pod.Annotations, capture.AnnotationCNI)
	}
	if err := j.do(); err != nil {
		return leave(p, err)
	}
	j.mark()
	return j.pod, Result{Outcome: Injected, Proxy: j.proxy, Sidecar: j.sidecar, Notes: j.notes}
}

// renewImages gives the containers of an earlier injection the images of this one: a manifest is injected again in
// order to upgrade it.
func (j *injection) renewImages() {
	for _, c := range pod.Containers(&j.pod.Spec) {
		switch {
		case !isOwn(c.Name):
		case c.Name != pod.Sidecar || !slices.Contains(c.Args, "--proxy"):
			c.Image = j.Image
		case j.EnvoyImage != "":
			c.Image = j.EnvoyImage
		}
	}
}

// leave returns the pod with only the reason added.
func leave(p *corev1.Pod, err error) (*corev1.Pod, Result) {
	r := Result{Outcome: LeftAlone, Reason: strings.ReplaceAll(err.Error(), "\n", "; ")}
	if !errors.As(err, &unableError{}) {
		r.Err = err
	}
	p = p.DeepCopy()
	if p.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return p, r // the API server rejects changes of it
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[AnnotationStatus] = string(LeftAlone) + ": " + r.Reason
	if pod.Find(&p.Spec, pod.Sidecar) == nil { // without a sidecar, captured traffic would arrive nowhere
		delete(p.Annotations, capture.AnnotationCNI)
	}
	return p, r
}

func (j *injection) do() error {
	steps := []func() error{j.choose, j.readUntil, j.settle, j.mayCapture, j.readPorts, j.add}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if !j.captures() {
		j.sidecar = ""
	}
	return nil
}

// choose reads which form the injection has.
func (j *injection) choose() error {
	var text string
	var errs [4]error
	j.proxy, text, errs[0] = chooseProxy(j.pod, j.Options)
	j.sidecar, errs[1] = chooseSidecar(j.pod, j.Options)
	j.capture, errs[2] = chooseCapture(j.pod, j.Options)
	_, errs[3] = preStopWord(j.pod)
	if text != "" {
		j.note("%s", text)
	}
	return cmp.Or(errs[:]...)
}

// add adds what the form consists of.
func (j *injection) add() error {
	switch j.proxy {
	case Sockets:
		return j.addSockets()
	case Istio:
		return j.addIstio()
	}
	earlier, _ := pod.Variable(pod.Find(&j.pod.Spec, pod.Sidecar), pod.HookToken)
	if j.token = cmp.Or(earlier, j.Token); !pod.Token.MatchString(j.token) {
		return errors.New("the hook's token must have 16 to 128 letters, digits, - and _")
	}
	return j.addSidecar()
}

// captures reports whether the pod's traffic is redirected to the sidecar.
func (j *injection) captures() bool { return j.proxy == Pipe || j.proxy == Envoy }

// mayCapture switches to sockets if the pod's traffic cannot or must not be captured.
func (j *injection) mayCapture() error {
	if !j.captures() {
		return nil
	}
	c, err := capture.Resolve(capture.Input{Annotations: j.pod.Annotations})
	if err != nil {
		return err
	}
	mode := j.Namespace.Labels["pod-security.kubernetes.io/enforce"]
	isNew := pod.Find(&j.pod.Spec, pod.Sidecar) == nil
	if isNew && j.capture != CaptureCNI && (mode == "restricted" || mode == "baseline") {
		j.proxy = Sockets
		j.note("the namespace does not admit NET_ADMIN (pod security %s): "+
			"nothing is captured, the app's preStop watches its sockets", mode)
		return nil
	}
	if reason := redirected(&j.pod.Spec); reason != "" {
		return unableError{reason + ": lastcall adds no second redirect; " +
			"lastcall.dev/proxy: sockets lets the app's preStop watch its sockets instead"}
	}
	if c.Off {
		j.proxy = Sockets
		j.note("interceptionMode is NONE: nothing is captured, the app's preStop watches its sockets")
		return nil
	}
	if j.sidecar == Classic && isJob(j.pod, j.Options) && !pod.SharesProcesses(&j.pod.Spec) {
		return unableError{"it is a Job's, which a classic sidecar would keep from ending: " +
			"a native one ends with it (annotation " + annotationSidecar +
			", Kubernetes 1.29 and later), or with shareProcessNamespace: true lastcall sees the app end"}
	}
	s := j.settings
	own := []int32{istio.InboundPort, istio.OutboundPort, int32(s.StatusPort.Value), int32(s.AdminPort.Value)}
	if reason := portsTaken(&j.pod.Spec, own); reason != "" {
		return unableError{reason}
	}
	return nil
}

// The status of pods without a sidecar of lastcall's.
const (
	statusSockets = string(Injected) + ": preStop, no sidecar"
	statusIstio   = string(Injected) + ": next to Istio's sidecar"
)

// mark records the result in the pod's labels and annotations.
func (j *injection) mark() {
	status := string(Injected) + ": " + string(j.sidecar) + " sidecar"
	switch {
	case j.proxy == Sockets:
		status = statusSockets
	case j.proxy == Istio:
		status = statusIstio
	case pod.IsOurs(j.pod): // the earlier sidecar may have had another form
		status = j.pod.Annotations[AnnotationStatus]
	case j.proxy == Envoy:
		status += " with Envoy"
	}
	j.pod.Annotations[AnnotationStatus] = status
	if j.pod.Labels == nil {
		j.pod.Labels = map[string]string{}
	}
	j.pod.Labels[LabelInjected] = LabelInjectedValue
	notes := strings.FieldsFunc(j.pod.Annotations[AnnotationNotes], func(r rune) bool { return r == '\n' })
	for _, n := range j.notes {
		if len(notes) < maxNotes && !slices.Contains(notes, n) {
			notes = append(notes, n)
		}
	}
	if len(notes) > 0 {
		j.pod.Annotations[AnnotationNotes] = strings.Join(notes, "\n")
	}
}
