package inject

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
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
	text := terminal.Shorten(fmt.Sprintf(format, args...), maxNote)
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
	j.capture, errs[2] = choice(j.pod, annotationCapture, CaptureSidecar, CaptureInit)
	j.capture = cmp.Or(j.capture, j.Capture, CaptureSidecar)
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

// environment has variables of a container, in their order in the manifest.
type environment []corev1.EnvVar

// set replaces or adds a variable.
func (e *environment) set(name, value string) {
	v := corev1.EnvVar{Name: name, Value: value}
	if i := slices.IndexFunc(*e, func(v corev1.EnvVar) bool { return v.Name == name }); i >= 0 {
		(*e)[i] = v
	} else {
		*e = append(*e, v)
	}
}

// setDefault sets a variable that is set neither here nor in Istio's settings.
func (e *environment) setDefault(name string, isSet bool, value string) {
	if !isSet && e.get(name) == "" {
		e.set(name, value)
	}
}

// get is the value of a variable; empty if there is none.
func (e environment) get(name string) string {
	value, _ := pod.Variable(&corev1.Container{Env: e}, name)
	return value
}

// pairs are the variables in the form of os.Environ.
func (e environment) pairs() []string {
	out := make([]string, 0, len(e))
	for _, v := range e {
		out = append(out, v.Name+"="+unescape(v.Value))
	}
	return out
}

// escape and unescape keep Kubernetes from expanding $(NAME).
func escape(value string) string   { return strings.ReplaceAll(value, "$(", "$$(") }
func unescape(value string) string { return strings.ReplaceAll(value, "$$(", "$(") }

// apps are the containers that the kubelet ends when the pod ends: all except the
// proxies, lastcall's and those of meshes. Init containers are not among them.
func apps(spec *corev1.PodSpec) []*corev1.Container {
	return slices.DeleteFunc(pod.Each(spec.Containers), func(c *corev1.Container) bool { return pod.IsProxy(spec, c) })
}

// isOwn reports whether lastcall has added a container, by its name.
func isOwn(name string) bool {
	return name == pod.Sidecar || name == containerCapture || name == containerCopy
}

// probed are the containers whose probes the kubelet runs: the apps and their own native sidecars.
func probed(spec *corev1.PodSpec) []*corev1.Container {
	out := apps(spec)
	for _, c := range pod.Each(spec.InitContainers) {
		if pod.IsNative(c) && !pod.IsProxy(spec, c) {
			out = append(out, c)
		}
	}
	return out
}

// setVariable replaces or adds one variable; an empty value removes it.
func setVariable(c *corev1.Container, name, value string) {
	if value == "" {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		return
	}
	(*environment)(&c.Env).set(name, value)
}

// setDefault adds a variable unless the manifest has it.
func setDefault(c *corev1.Container, name, value string) {
	if _, isSet := pod.Variable(c, name); !isSet {
		setVariable(c, name, value)
	}
}

// addVolume adds a volume unless the pod has it.
func addVolume(spec *corev1.PodSpec, volume corev1.Volume) {
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
		spec.Volumes = append(spec.Volumes, *volume.DeepCopy())
	}
}
