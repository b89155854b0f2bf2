package inject

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pathWait is where the agent drains for who knows the pod's token.
const pathWait = "/wait/"

// waitHook is the preStop that begins the drain and returns when no inbound
// request is left. The kubelet asks by itself: it needs nothing in the image.
func (j *injection) waitHook() *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: pathWait + j.token,
		Port: intstr.FromInt32(int32(j.settings.StatusPort.Value)),
	}}
}

func isWaitHook(h *corev1.LifecycleHandler) bool {
	return h != nil && h.HTTPGet != nil && strings.HasPrefix(h.HTTPGet.Path, pathWait)
}

// tokenOf finds the token that an earlier injection gave the pod.
func tokenOf(spec *corev1.PodSpec) string {
	if c := find(spec, containerSidecar); c != nil {
		token, _ := variable(c, variableHookToken)
		return token
	}
	return ""
}

// preStopWord is what the pod says of its own hooks.
func (j *injection) preStopWord() (string, error) {
	switch said := j.pod.Annotations[annotationPreStop]; said {
	case "", "keep":
		return "keep", nil
	case "replace", "none":
		return said, nil
	default:
		return "", fmt.Errorf("annotation %s is %q: accepted are keep, replace and none", annotationPreStop, said)
	}
}

// addHooks gives each app the hook, unless it has its own. See the package's
// comment for the order that follows.
func (j *injection) addHooks(hook func(*corev1.Container) *corev1.LifecycleHandler) error {
	word, err := j.preStopWord()
	if err != nil || word == "none" {
		return err
	}
	for _, c := range apps(&j.pod.Spec) {
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		own := c.Lifecycle.PreStop
		switch {
		case isWaitHook(own), isPortsHook(own):
		case own == nil || word == "replace":
			if h := hook(c); h != nil {
				c.Lifecycle.PreStop = h
			}
		default:
			j.note("container %s keeps its own preStop: its SIGTERM comes when that has ended, drained or not; %s: replace lets it come when no request is left", c.Name, annotationPreStop)
		}
		if *c.Lifecycle == (corev1.Lifecycle{}) {
			c.Lifecycle = nil
		}
	}
	return nil
}
