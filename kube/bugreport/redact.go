package bugreport

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// redacted replaces a secret.
const redacted = "REDACTED"

// secretName matches the names of variables, flags and annotations whose values are probably secret.
var secretName = regexp.MustCompile(`(?i)(pass(word|wd|phrase)?|secret|token|credential|api[-_.]?key|private[-_.]?key|access[-_.]?key|\bkey\b|_key$|auth|cookie|session|dsn|connection[-_.]?string|signature|salt)`)

// secretValue matches values that are secret whatever their names are: credentials in a URL, PEM keys, JSON Web Tokens,
// keys of cloud providers.
var secretValue = regexp.MustCompile(`(?i)(://[^/\s:@]*:[^/\s@]+@|-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{10,}\.|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|password=|bearer\s|basic\s+[a-z0-9+/=]{8,}|authorization)`)

// harmless are names that match secretName and hold no secret.
var harmless = map[string]bool{"LASTCALL_APP_CONTAINERS": true}

func isSecret(name, value string) bool {
	return value != "" && (!harmless[name] && secretName.MatchString(name) || secretValue.MatchString(value))
}

// Pod returns a copy of a pod without values that look secret.
func Pod(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	meta(&p.ObjectMeta)
	spec(&p.Spec)
	return p
}

func meta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	for name, value := range m.Annotations {
		if name == corev1.LastAppliedConfigAnnotation || isSecret(name, value) {
			m.Annotations[name] = redacted
		}
	}
}

func spec(s *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			container(&list[i])
		}
	}
	for i := range s.EphemeralContainers {
		c := corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		container(&c)
		s.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
}

func container(c *corev1.Container) {
	for i := range c.Env {
		if isSecret(c.Env[i].Name, c.Env[i].Value) {
			c.Env[i].Value = redacted
		}
	}
	c.Command, c.Args = arguments(c.Command), arguments(c.Args)
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				handler(hook.Exec, hook.HTTPGet)
			}
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			handler(probe.Exec, probe.HTTPGet)
		}
	}
}

func handler(exec *corev1.ExecAction, get *corev1.HTTPGetAction) {
	if exec != nil {
		exec.Command = arguments(exec.Command)
	}
	if get == nil {
		return
	}
	if rest, ok := strings.CutPrefix(get.Path, "/wait/"); ok && rest != "" { // the pod's token
		get.Path = "/wait/" + redacted
	}
	for i := range get.HTTPHeaders {
		if isSecret(get.HTTPHeaders[i].Name, get.HTTPHeaders[i].Value) {
			get.HTTPHeaders[i].Value = redacted
		}
	}
}

// arguments redacts --flag=SECRET, --flag SECRET, NAME=SECRET and values that are secret in themselves.
func arguments(args []string) []string {
	for i, arg := range args {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case joined && isSecret(strings.TrimLeft(name, "-"), value):
			args[i] = name + "=" + redacted
		case secretValue.MatchString(arg):
			args[i] = redacted
		case i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(args[i-1], "=") && !strings.HasPrefix(arg, "-") && isSecret(strings.TrimLeft(args[i-1], "-"), arg):
			args[i] = redacted
		}
	}
	return args
}
