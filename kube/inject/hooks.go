package inject

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
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
	return j.captures() && j.sidecar == Classic && !pod.SharesProcesses(&j.pod.Spec) &&
		j.settings.Mode() == drain.ExitOnZero
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
func (j *injection) addHooks(hook func(*corev1.Container) *corev1.LifecycleHandler) {
	for _, c := range apps(&j.pod.Spec) {
		j.join(c, hook)
		if isOurHook(pod.HookOf(c)) {
			setDefault(c, timers.DrainedByHook, "true") // to a Go program with lastcall's library
		}
	}
}

// join sets one container's hook, and notes the use of its own.
func (j *injection) join(c *corev1.Container, hook func(*corev1.Container) *corev1.LifecycleHandler) {
	own, p := pod.HookOf(c), j.joinOf(c)
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
	case own != nil && p.Merge == MergeAdds:
		j.note("container %s: its own preStop is not run: %s", c.Name, pod.Void(own, c))
	case p.Merge == MergeReplaces && p.Sleep > 0:
		if j.noteReplaced(c, p.Sleep); p.Stopper != "" {
			j.note("container %s: its SIGTERM follows, in place of its own %s", c.Name, p.Stopper)
		}
	case p.Merge == MergeRuns:
		j.note("container %s: lastcall's hook waits for the requests in flight, and then runs its own preStop "+
			"in the time that is left; "+
			"%s: %s keeps its own alone", c.Name, annotationPreStop, preStopKeep)
	case p.Merge == MergeRunsFirst:
		j.note("container %s: lastcall's hook runs its own preStop first, and then waits for the worker; "+
			"%s: %s keeps its own alone", c.Name, annotationPreStop, preStopKeep)
	}
}

func (j *injection) noteReplaced(c *corev1.Container, sleep time.Duration) {
	waits := "waits at least as long"
	if grace := pod.GraceOf(&j.pod.Spec); sleep >= grace {
		waits = fmt.Sprintf("waits as long as the grace period of %v allows, which is less", grace)
	}
	j.note("container %s: lastcall's hook replaces its preStop sleep of %v, %s, and then for the "+
		"requests in flight; %s: %s keeps the sleep", c.Name, sleep, waits, annotationPreStop, preStopKeep)
}

// Merge is injection's treatment of the preStop hook that an app already has.
type Merge string

const (
	MergeAdds      Merge = "adds"       // there is none that does anything: lastcall's is added
	MergeReplaces  Merge = "replaces"   // lastcall's takes its place
	MergeRuns      Merge = "runs"       // lastcall's waits, and then runs it: it may stop the app
	MergeRunsFirst Merge = "runs first" // the same in the other order: a worker has to stop taking messages
	MergeKeeps     Merge = "keeps"      // it stays, and lastcall's is not added
)

// Join is a decision about one container's preStop hook.
type Join struct {
	Merge   Merge
	Sleep   time.Duration // of MergeReplaces, of the replaced hook: the drain lasts at least as long
	Stopper string        // of MergeReplaces, what the replaced hook does after its sleep
}

// JoinOf decides about the preStop hook of an app container. lint, plan and rehearse use it too. A hook that only
// sleeps waits for what lastcall's sees; any other may do something that the app needs.
func JoinOf(p *corev1.Pod, c *corev1.Container) Join {
	word, err := preStopWord(p)
	own := pod.HookOf(c)
	isIdle := own == nil || pod.Void(own, c) != ""
	runs := Join{Merge: MergeRuns}
	if p.Annotations[annotationUntil] != "" {
		runs.Merge = MergeRunsFirst
	}
	switch before := pod.Own(own); {
	case err != nil, word == preStopNone, word == preStopKeep && !isIdle && !isOurHook(own):
		return Join{Merge: MergeKeeps}
	case len(before) > 0 && word != preStopReplace:
		return runs
	case isIdle, isOurHook(own):
		return Join{Merge: MergeAdds}
	case word == preStopReplace:
		return Join{Merge: MergeReplaces}
	}
	hook := pod.ReadHook(&p.Spec, c)
	if hook.OnlySleeps() && (own.Sleep != nil || hook.Duration < pod.Forever) || hook.SleepsAndStops(&p.Spec, c) > 0 {
		return Join{MergeReplaces, hook.Duration, hook.Stopper()}
	}
	return runs
}

// joinOf is JoinOf, which reads each hook once.
func (j *injection) joinOf(c *corev1.Container) Join {
	own := pod.HookOf(c)
	known, isKnown := j.joins[own]
	if !isKnown {
		known = JoinOf(j.pod, c)
		j.joins[own] = known
	}
	return known
}

// The values of annotationPreStop; empty merges.
const (
	preStopKeep    = "keep"
	preStopReplace = "replace"
	preStopNone    = "none"
)

// preStopWord is the pod's setting for its own hooks.
func preStopWord(pod *corev1.Pod) (string, error) {
	return choice(pod, annotationPreStop, preStopKeep, preStopReplace, preStopNone)
}

// keepSleeps makes the drain as long as the longest sleep that it replaces, those of meshes' proxies included: its
// author knows how long clients take to notice. A native sidecar of the app's keeps its hook. The annotation keeps the
// time for a second injection, which does not see the sleep.
func (j *injection) keepSleeps() (changed bool) {
	var d time.Duration
	for i, c := range pod.Containers(&j.pod.Spec) {
		if i >= len(j.pod.Spec.InitContainers) || pod.IsProxy(&j.pod.Spec, c) {
			d = max(d, j.joinOf(c).Sleep)
		}
	}
	if !j.merges() || d <= j.settings.MinimumDrain.Value {
		return false
	}
	j.env.set(meshconfig.VariableMinimumDrain, d.String())
	j.pod.Annotations[pod.AnnotationMinimumDrain] = d.String()
	return true
}

// isReplaceable reports whether a proxy's own hook gives way to lastcall's: there is none, an earlier one of
// lastcall's, or one that only sleeps. No hook of a proxy runs before lastcall's: the common ones wait until Envoy is
// idle by themselves.
func (j *injection) isReplaceable(c *corev1.Container) bool {
	word, _ := preStopWord(j.pod)
	own := pod.HookOf(c)
	return own == nil || isExecHook(own) || word == preStopReplace || word == "" && pod.ReadHook(&j.pod.Spec,
		c).OnlySleeps()
}

// own is the command that the hook of a container must run in addition to its wait; nil for none.
func (j *injection) own(c *corev1.Container) []string {
	if merge := j.joinOf(c).Merge; merge != MergeRuns && merge != MergeRunsFirst {
		return nil
	}
	own := pod.HookOf(c)
	if earlier := pod.Own(own); earlier != nil {
		return earlier
	}
	if own.Exec != nil {
		return own.Exec.Command
	}
	get := own.HTTPGet
	scheme := cmp.Or(get.Scheme, corev1.URISchemeHTTP)
	host := net.JoinHostPort(cmp.Or(get.Host, "localhost"), strconv.Itoa(int(pod.PortOf(c, get.Port))))
	at := url.URL{Scheme: strings.ToLower(string(scheme)), Host: host}
	at.Path, at.RawQuery, _ = strings.Cut(get.Path, "?")
	at.Path = "/" + strings.TrimPrefix(at.Path, "/")
	out := []string{at.String()}
	for _, h := range get.HTTPHeaders {
		out = append(out, h.Name+": "+h.Value)
	}
	return out
}

// running adds to a hook the container's own command, for limit at most.
func (j *injection) running(h *corev1.LifecycleHandler, c *corev1.Container,
	limit time.Duration) *corev1.LifecycleHandler {
	if own := j.own(c); len(own) > 0 {
		flag := "--after"
		if j.joinOf(c).Merge == MergeRunsFirst {
			flag = "--before"
		}
		h.Exec.Command = append(append(h.Exec.Command, flag, limit.String(), "--"), own...)
	}
	return h
}

// planeHook is a hook without an agent, which runs the container's own.
func (j *injection) planeHook(c *corev1.Container, flags []string, ports []watched) *corev1.LifecycleHandler {
	limit := hook.Config(j.settings, false, 0).LastCallAfter()
	return j.running(j.withProbes(j.waitCommand(c, flags, ports), c), c, limit)
}

// addPresence gives apps the hook by which a classic sidecar detects their end. It returns the number of such apps if
// it is not one.
func (j *injection) addPresence() (containers string) {
	if !j.leavesPresence() {
		return ""
	}
	all := apps(&j.pod.Spec)
	for _, c := range all {
		if !isExecHook(pod.HookOf(c)) {
			j.note("the classic sidecar cannot detect the end of container %s, whose preStop is not lastcall's: "+
				"it carries outbound connections until the grace period ends; "+
				"a native sidecar, or shareProcessNamespace: true, spares that", c.Name)
		}
	}
	if len(all) > 1 {
		containers = strconv.Itoa(len(all))
	}
	return containers
}
