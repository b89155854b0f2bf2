package inject

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// waitHook is a preStop that begins the drain and returns when no inbound request is in flight. The kubelet sends it:
// it needs nothing in the image.
func (j *injection) waitHook(token string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: pod.PathWait + token,
		Port: intstr.FromInt32(int32(j.settings.StatusPort.Value)),
	}}
}

// merges reports whether the apps get lastcall's hook. Istio gives them none: its agent would treat one before the
// SIGTERM as a native sidecar's, and exit at once after it.
func (j *injection) merges() bool {
	return !j.captures() || j.settings.Compat.Value != meshconfig.CompatIstio
}

// appHook is the hook of an app container. The kubelet also runs it when it restarts that container alone: in a pod
// with several, the hook lists the container's ports.
func (j *injection) appHook(c *corev1.Container) *corev1.LifecycleHandler {
	if j.leavesPresence() || len(j.own(c)) > 0 {
		command := []string{binary, "wait"}
		if port := j.settings.StatusPort.Value; port != istio.StatusPort {
			command = append(command, "--status-port", strconv.Itoa(port))
		}
		if len(apps(&j.pod.Spec)) > 1 {
			command = append(command, "--app-ports", cmp.Or(tcpPorts(c), "none"))
		}
		j.mountProgram(c)
		h := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
		return j.running(h, c, j.settings.Drain().LastCallAfter())
	}
	h := j.waitHook(j.token)
	if len(apps(&j.pod.Spec)) > 1 {
		h.HTTPGet.Path += "?ports=" + tcpPorts(c)
	}
	return h
}

// leavesPresence reports whether an app's hook has to run in the app's container: a classic sidecar detects the end of
// the container by a process that the hook leaves there. The kubelet ends a native sidecar after the app, and with a
// shared process namespace the sidecar sees the app's processes. With Istio's rules nothing waits for the app.
func (j *injection) leavesPresence() bool {
	return j.captures() && j.sidecar == Classic && !sharesProcesses(&j.pod.Spec) && j.settings.Mode() == drain.ExitOnZero
}

// isOurHook reports whether a hook is lastcall wait, by httpGet or by exec.
func isOurHook(h *corev1.LifecycleHandler) bool { return pod.IsWaitGet(h) || isExecHook(h) }

// sidecarToken is the token of the sidecar's own hook, which shows the agent that the pod ends. It is derived from the
// app's: both are in the pod's manifest, and only have to differ.
func (j *injection) sidecarToken() string {
	sum := sha256.Sum256([]byte("sidecar " + j.token))
	return hex.EncodeToString(sum[:16])
}

// addHooks gives each app the hook, and joins it with the app's own (JoinOf). The package comment describes the
// order of the endings.
func (j *injection) addHooks(hook func(*corev1.Container) *corev1.LifecycleHandler) error {
	for _, c := range apps(&j.pod.Spec) {
		p, err := j.joinOf(c)
		if err != nil {
			return err
		}
		j.join(c, p, hook)
		if isOurHook(pod.HookOf(c)) {
			setDefault(c, timers.DrainedByHook, "true") // to a Go program with lastcall's library
		}
	}
	return nil
}

// join sets one container's hook, and notes the use of its own.
func (j *injection) join(c *corev1.Container, p join, hook func(*corev1.Container) *corev1.LifecycleHandler) {
	own := pod.HookOf(c)
	if p.Merge == MergeKeeps {
		if own != nil && j.pod.Annotations[annotationPreStop] == preStopKeep {
			j.note("container %s keeps its own preStop: its SIGTERM comes when that hook has ended, drained or not; "+
				"without %s: %s it comes when no request is left", c.Name, annotationPreStop, preStopKeep)
		}
		return
	}
	h := hook(c)
	if h == nil || isOurHook(own) && !(pod.IsWaitGet(own) && pod.IsWaitGet(h) ||
		isExecHook(own) && isExecHook(h) && isPlaneHook(own) == isPlaneHook(h)) { // another form of the sidecar
		return
	}
	pod.SetHook(c, h) // of an earlier injection too: with another container added since, ports matter
	switch {
	case isOurHook(own):
	case p.Merge == MergeReplaces && p.Sleep > 0:
		if j.noteReplaced(c, p.Sleep); p.stopper != "" {
			j.note("container %s: its SIGTERM follows, in place of its own %s", c.Name, p.stopper)
		}
	case p.Merge == MergeRuns:
		j.note("container %s: lastcall's hook waits for the requests in flight, and then runs its own preStop in the time that is left; "+
			"%s: %s keeps its own alone", c.Name, annotationPreStop, preStopKeep)
	case p.Merge == MergeRunsFirst:
		j.note("container %s: lastcall's hook runs its own preStop first, and then waits for the worker; "+
			"%s: %s keeps its own alone", c.Name, annotationPreStop, preStopKeep)
	}
}

func (j *injection) noteReplaced(c *corev1.Container, sleep time.Duration) {
	waits := "waits at least as long"
	if grace := GraceOf(&j.pod.Spec); sleep >= grace {
		waits = fmt.Sprintf("waits as long as the grace period of %v allows, which is less", grace)
	}
	j.note("container %s: lastcall's hook replaces its preStop sleep of %v, %s, and then for the "+
		"requests in flight; %s: %s keeps the sleep", c.Name, sleep, waits, annotationPreStop, preStopKeep)
}
