package inject

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// pathWait, followed by the pod's token, is the agent's path that drains the pod.
const pathWait = "/wait/"

// waitHook is a preStop that begins the drain and returns when no inbound request is in flight. The kubelet sends it: it
// needs nothing in the image.
func (j *injection) waitHook(token string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: pathWait + token,
		Port: intstr.FromInt32(int32(j.settings.StatusPort.Value)),
	}}
}

// appHook is the hook of an app container. The kubelet also runs it when it restarts that container alone: in a pod with
// several, the hook lists the container's ports.
func (j *injection) appHook(c *corev1.Container) *corev1.LifecycleHandler {
	if j.leavesPresence() {
		command := []string{binary, "wait"}
		if port := j.settings.StatusPort.Value; port != meshconfig.DefaultStatusPort {
			command = append(command, "--status-port", strconv.Itoa(port))
		}
		if len(apps(&j.pod.Spec)) > 1 {
			command = append(command, "--app-ports", cmp.Or(tcpPorts(c), "none"))
		}
		j.mountProgram(c)
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
	}
	h := j.waitHook(j.token)
	if len(apps(&j.pod.Spec)) > 1 {
		h.HTTPGet.Path += "?ports=" + tcpPorts(c)
	}
	return h
}

// leavesPresence reports whether an app's hook has to run in the app's container: a classic sidecar detects the end of the
// container by a process that the hook leaves there. The kubelet ends a native sidecar after the app, and with a shared
// process namespace the sidecar sees the app's processes. With Istio's rules nothing waits for the app.
func (j *injection) leavesPresence() bool {
	return j.captures() && j.sidecar == Classic && !sharesProcesses(&j.pod.Spec) && j.settings.Mode() == drain.ExitOnZero
}

// isOurHook reports whether a hook is lastcall wait, by httpGet or by exec.
func isOurHook(h *corev1.LifecycleHandler) bool { return isWaitHook(h) || isExecHook(h) }

// sidecarToken is the token of the sidecar's own hook, which shows the agent that the pod ends. It is derived from the
// app's: both are in the pod's manifest, and only have to differ.
func (j *injection) sidecarToken() string {
	sum := sha256.Sum256([]byte("sidecar " + j.token))
	return hex.EncodeToString(sum[:16])
}

func isWaitHook(h *corev1.LifecycleHandler) bool {
	return h != nil && h.HTTPGet != nil && strings.HasPrefix(h.HTTPGet.Path, pathWait)
}

// tokenOf returns the token of an earlier injection.
func tokenOf(spec *corev1.PodSpec) string {
	if c := carrier.Find(spec, carrier.Sidecar); c != nil {
		token, _ := carrier.Variable(c, carrier.HookToken)
		return token
	}
	return ""
}

// preStopWord is the pod's setting for its own hooks.
func (j *injection) preStopWord() (string, error) {
	switch said := j.pod.Annotations[annotationPreStop]; said {
	case "", "keep":
		return "keep", nil
	case "replace", "none":
		return said, nil
	default:
		return "", fmt.Errorf("annotation %s is %q: must be keep, replace or none", annotationPreStop, said)
	}
}

// announceHook sets the variable by which a Go program with lastcall's library knows that its SIGTERM
// comes after the drain. A value from the manifest is kept.
func announceHook(c *corev1.Container) {
	if _, isSet := carrier.Variable(c, timers.DrainedByHook); !isSet {
		setVariable(c, timers.DrainedByHook, "true")
	}
}

// addHooks gives each app the hook, unless it has its own. The package comment describes the order of the endings.
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
		case isOurHook(own): // with another container added since, ports matter
			if h := hook(c); isWaitHook(own) && isWaitHook(h) || isExecHook(own) && isExecHook(h) && isPlaneHook(own) == isPlaneHook(h) {
				c.Lifecycle.PreStop = h
			}
		case own == nil || word == "replace":
			if h := hook(c); h != nil {
				c.Lifecycle.PreStop = h
			}
		default:
			j.note("container %s keeps its own preStop: its SIGTERM comes when that hook has ended, drained or not; with %s: replace it comes when no request is left", c.Name, annotationPreStop)
		}
		if c.Lifecycle.PreStop != nil && isOurHook(c.Lifecycle.PreStop) {
			announceHook(c)
		}
		if *c.Lifecycle == (corev1.Lifecycle{}) {
			c.Lifecycle = nil
		}
	}
	return nil
}
