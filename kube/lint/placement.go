package lint

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/termination"
)

const exitOnZeroName = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"

func (l *linting) istioProxy() *corev1.Container {
	var found *corev1.Container
	l.containers(func(c *corev1.Container, _ string) {
		if c.Name == "istio-proxy" {
			found = c
		}
	})
	return found
}

func isNative(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// isInjected reports whether lastcall's injection has changed the pod.
func isInjected(pod *corev1.Pod) bool { return pod.Labels["lastcall.dev/injected"] == "true" }

// isIstios reports whether Istio's injector has written a container, into which it copies proxyMetadata.
func isIstios(c *corev1.Container) bool {
	return c.Name == "istio-proxy" || c.Name == "istio-init" || c.Name == "istio-validation"
}

// ignoredByNative is what Istio's agent does in a native sidecar (pkg/envoy/agent.go), as measured.
const ignoredByNative = "is not read by a native sidecar, Istio's default since 1.27: the app gets its SIGTERM at once, and the sidecar ends with it, whatever is in flight"

// exitOnZero: the variable belongs to proxyMetadata, or to the proxy's environment.
func (l *linting) exitOnZero() {
	l.containers(func(c *corev1.Container, path string) {
		if c.Name != "lastcall" && !isIstios(c) && slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == exitOnZeroName }) {
			l.find("LC005", Error, path+".env["+exitOnZeroName+"]", "has no effect on an app, since only the proxy reads it: move it to proxyMetadata of the annotation proxy.istio.io/config")
		}
	})
	for name := range l.Pod.Annotations {
		if name == exitOnZeroName || strings.HasSuffix(name, "/"+exitOnZeroName) {
			l.find("LC005", Error, "metadata.annotations["+name+"]", "is not an annotation: move it to proxyMetadata of the annotation proxy.istio.io/config")
		}
	}
	if l.Job && l.Settings.ExitOnZero.IsSet() && l.Settings.ExitOnZero.Value {
		l.find("LC006", Warning, "metadata.annotations[proxy.istio.io/config]", "%s acts at SIGTERM, which a completed Job never receives: use a native sidecar, which ends with the app", exitOnZeroName)
	}
}

// misplaced repeats the errors and warnings of the settings.
func (l *linting) misplaced() {
	const where = "metadata.annotations[proxy.istio.io/config]"
	if l.Err != nil {
		for line := range strings.SplitSeq(l.Err.Error(), "\n") {
			l.find("LC007", Error, where, "%s", line)
		}
	}
	for _, w := range l.Settings.Warnings {
		if strings.HasPrefix(w.Field, "terminationDrainDuration") {
			continue // LC004 is more precise
		}
		l.find("LC007", Warning, where, "%s", w)
	}
}

// shellless are parts of the names of images without a shell.
var shellless = []string{"distroless", "/static", "scratch", "chainguard/", "cgr.dev/"}

// external are the usual programs of hooks, which few images contain.
var external = []string{"sh", "bash", "ash", "sleep", "curl", "wget", "nc", "netstat", "killall", "kill"}

func (l *linting) hooksWithoutShell() {
	l.containers(func(c *corev1.Container, where string) {
		h := preStop(c)
		if h == nil || h.Exec == nil || len(h.Exec.Command) == 0 || strings.HasSuffix(c.Image, "-debug") || strings.HasSuffix(c.Image, ":debug") {
			return
		}
		program := path.Base(h.Exec.Command[0])
		if slices.Contains(external, program) && slices.ContainsFunc(shellless, func(s string) bool { return strings.Contains(c.Image, s) }) {
			l.find("LC008", Error, where+".lifecycle.preStop", "runs %s, which image %s probably lacks: the hook fails and the kubelet sends SIGTERM at once; use sleep: {seconds: N} or lastcall's httpGet", program, c.Image)
		}
	})
}

// isPilotDrain reports whether a hook is the one of Istio's native sidecar.
func isPilotDrain(h *corev1.LifecycleHandler) bool {
	return h != nil && h.Exec != nil && slices.Contains(h.Exec.Command, "drain") && slices.Contains(h.Exec.Command, "pilot-agent")
}

// drainsEnvoy reports whether a hook is lastcall's of istio-proxy, which drains it too.
func drainsEnvoy(h *corev1.LifecycleHandler) bool {
	return h != nil && h.Exec != nil && slices.Contains(h.Exec.Command, "--envoy") && slices.Contains(h.Exec.Command, "--sidecar")
}

// nativeIstio: a container with the image auto is merged into Istio's, which keeps its preStop unless there is another.
func (l *linting) nativeIstio() {
	c := l.istioProxy()
	if c == nil || !isNative(c) || c.Lifecycle == nil || isPilotDrain(preStop(c)) || drainsEnvoy(preStop(c)) || c.Image == "auto" && preStop(c) == nil {
		return
	}
	l.find("LC009", Warning, "spec.initContainers[istio-proxy].lifecycle", "replaces Istio's preStop (pilot-agent request --debug-port=15020 POST drain): the drain begins only after the app has exited")
}

// loops end at their condition or at SIGKILL.
func (l *linting) loops() {
	l.containers(func(c *corev1.Container, where string) {
		h := preStop(c)
		if h == nil || h.Exec == nil || len(h.Exec.Command) == 0 {
			return
		}
		if line, ok := termination.ShellLine(h.Exec.Command); ok && termination.IsLoop(line) && strings.Contains(line, "netstat") {
			l.find("LC015", Warning, where+".lifecycle.preStop", "waits until netstat lists no connection: idle connections hold it until SIGKILL, and an app that closes its listener first ends it too early; use lastcall wait")
		}
	})
}
