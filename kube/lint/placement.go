package lint

import (
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/timers"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// isInjected reports whether lastcall's injection has changed the pod.
func isInjected(p *corev1.Pod) bool {
	return p.Labels[pod.LabelInjected] == pod.LabelInjectedValue
}

// isIstios reports whether Istio's injector has written a container, into which it copies proxyMetadata.
func isIstios(c *corev1.Container) bool {
	return c.Name == "istio-proxy" || c.Name == "istio-init" || c.Name == "istio-validation"
}

// ignoredByNative is the behaviour of Istio's agent in a native sidecar (pkg/envoy/agent.go), as measured.
const ignoredByNative = "is not read by a native sidecar, Istio's default since 1.27: " +
	"the app gets its SIGTERM at once, and the sidecar ends with it, whatever is in flight"

// exitOnZero: the variable belongs to proxyMetadata, or to the proxy's environment.
func (l *linting) exitOnZero() {
	l.containers(func(c *corev1.Container, path string) {
		hasVariable := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == meshconfig.VariableExitOnZero
		})
		if c.Name != "lastcall" && !isIstios(c) && hasVariable {
			l.find("LC005", Error, path+".env["+meshconfig.VariableExitOnZero+"]",
				"has no effect on an app, since only the proxy reads it: "+
					"move it to proxyMetadata of the annotation proxy.istio.io/config")
		}
	})
	for name := range l.pod.Annotations {
		if name == meshconfig.VariableExitOnZero || strings.HasSuffix(name, "/"+meshconfig.VariableExitOnZero) {
			l.find("LC005", Error, "metadata.annotations["+name+"]",
				"is not an annotation: move it to proxyMetadata of the annotation proxy.istio.io/config")
		}
	}
}

// misplaced repeats the errors and warnings of the settings.
func (l *linting) misplaced() {
	const where = "metadata.annotations[proxy.istio.io/config]"
	for _, err := range split(l.err) {
		at := where
		wrong, ok := errors.AsType[*meshconfig.FieldError](err)
		if ok && wrong.Source.Origin >= meshconfig.Environment {
			var annotation string
			at, annotation = l.whereSet(wrong.Source.Name)
			if annotation != "" {
				wrong.Source = meshconfig.Source{Origin: meshconfig.Annotation, Name: annotation}
			}
		}
		l.find("LC007", Error, at, "%s", err)
	}
	for _, w := range l.settings.Warnings {
		if strings.HasPrefix(w.Field, "terminationDrainDuration") {
			continue // an unused time, with which no request is lost
		}
		text := w.String()
		if !l.hasLastcall() {
			if text = aboutIstio.Replace(text); strings.Contains(text, "lastcall leaves") {
				continue // Istio's agent uses it
			}
		}
		l.find("LC007", Warning, where, "%s", text)
	}
	for _, name := range slices.Sorted(maps.Keys(l.pod.Annotations)) {
		if !strings.HasPrefix(name, "lastcall.dev/") || slices.Contains(inject.Keys(), name) {
			continue
		}
		text := "is not an annotation of lastcall and is ignored"
		if meant, ok := timers.Nearest(name, inject.Keys()); ok {
			text += ": did you mean " + meant + "?"
		}
		l.find("LC007", Warning, "metadata.annotations["+name+"]", "%s", text)
	}
	l.containers(func(*corev1.Container, string) {}) // expands them
	if l.expansion.IsCut {
		l.find("LC007", Error, "spec.containers", "%s", manifest.CutText)
	}
}

// whereSet is the field that sets a variable of the agent, and lastcall's annotation if it is one.
func (l *linting) whereSet(variable string) (field, annotation string) {
	if key := inject.AnnotationOf(variable); l.pod.Annotations[key] != "" {
		return "metadata.annotations[" + key + "]", key
	}
	return l.configured, ""
}

// split are the errors that are joined in one.
func split(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return slices.DeleteFunc([]error{err}, func(err error) bool { return err == nil })
}

// aboutIstio takes lastcall out of the warnings about a pod that does not have it.
var aboutIstio = strings.NewReplacer("lastcall uses it, Istio", "Istio", "lastcall uses them, Istio", "Istio",
	"lastcall unwraps it, Istio's proxy would not", "Istio's proxy does not unwrap it",
	"ignored, as lastcall does not need it; Istio would refuse it", "Istio refuses it",
	" for lastcall", "", " on lastcall", "")

func (l *linting) hooksWithoutShell(c *corev1.Container, where string) {
	if c.Lifecycle != nil && strings.HasPrefix(where, "spec.init") && !pod.IsNative(c) {
		l.find("LC007", Error, where+".lifecycle",
			"is refused by the API server: of init containers, only those with restartPolicy: Always have one")
		return
	}
	if signal, source := pod.StopSignal(c); source == pod.FromLifecycle {
		why := ""
		switch {
		case l.pod.Spec.OS == nil:
			why = "without os: {name: linux}"
		case !strings.HasPrefix(signal, "SIG"):
			why = "as it has the names of signals alone, such as SIGTERM"
		case pod.IsWindows(&l.pod.Spec) && signal != "SIGTERM" && signal != "SIGKILL":
			why = "on Windows, which has SIGTERM and SIGKILL alone"
		}
		if why != "" {
			l.find("LC007", Error, where+".lifecycle.stopSignal", "is refused by the API server %s", why)
		}
	}
	for i, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
		if p != nil && p.TerminationGracePeriodSeconds != nil && (i == 0 || *p.TerminationGracePeriodSeconds <= 0) {
			probe := []string{"readinessProbe", "livenessProbe", "startupProbe"}[i]
			l.find("LC007", Error, where+"."+probe+".terminationGracePeriodSeconds",
				"is refused by the API server: it belongs to probes whose failure ends the container, and is above 0")
		}
	}
	hook := l.ownHook(c)
	if why := hook.Failure(); why != "" {
		l.find("LC008", Error, where+".lifecycle.preStop",
			"fails: %s; SIGTERM comes after %v; use sleep: {seconds: N}%s", why, hook.Duration,
			l.unlessUnfit(" or lastcall's httpGet"))
	}
}

// nativeIstio: a container with the image auto is merged into Istio's, which keeps its preStop unless there is another.
func (l *linting) nativeIstio() {
	c := pod.Find(&l.pod.Spec, pod.IstioProxy)
	if c == nil || !pod.IsNative(c) || !pod.ReplacesPilotDrain(c) {
		return
	}
	l.find("LC009", Warning, "spec.initContainers[istio-proxy].lifecycle",
		"replaces Istio's preStop (pilot-agent request --debug-port=15020 POST drain): "+
			"the drain begins only after the app has exited")
}

// loops end at their condition or at SIGKILL.
func (l *linting) loops(c *corev1.Container, where string) {
	if hook := pod.ReadHook(&l.pod.Spec, c); hook.Kind == podend.LoopHook && (hook.Most == 0 || hook.Most >= l.grace) {
		l.find("LC015", Warning, where+".lifecycle.preStop",
			"waits until netstat lists no connection: idle connections hold it until SIGKILL, "+
				"and an app that closes its listener first ends it too early; use lastcall wait")
	}
}

// front: an app below such a process never gets its stop signal, and SIGKILL ends it with all its requests.
func (l *linting) front(c *corev1.Container, path string) {
	spec := &l.pod.Spec
	isApp := strings.HasPrefix(path, "spec.containers") && (len(c.Ports) > 0 || len(spec.Containers) == 1)
	signal, _ := pod.StopSignal(c)
	process, reaction := pod.Front(spec, c, signal)
	if l.job || !isApp || process == "" || pod.IsProxy(spec, c) {
		return
	}
	if hook := pod.ReadHook(spec, c); hook.Stops && hook.StopsAt < l.grace {
		return
	}
	text, when := "is PID 1 and does not pass "+signal+" on", "at the end of the grace period"
	if reaction == podend.Exits {
		text, when = "ends at "+signal+" and does not wait for the app", "at once"
	}
	l.find("LC029", Warning, path+".command",
		"%s %s: the app does not learn of its end, and SIGKILL cuts its work %s; "+
			"start the app itself or by exec (sh -c \"exec …\"), or handle the signal (trap)", process, text, when)
}

// sidecarForm: the agent knows from --sidecar what the kubelet sends it at the end of the pod. Without that, an app's
// preStop hook means that only that container restarts.
func (l *linting) sidecarForm(c *corev1.Container, where string) {
	args, isLastcall := pod.AgentArguments(c)
	if !isLastcall || args[0] != "agent" || !l.hooksWait() {
		return
	}
	form := pod.Argument(args, "--sidecar")
	switch hook := pod.HookOf(c); {
	case form == "":
		want := "classic"
		if pod.IsNative(c) {
			want = "native"
		}
		l.find("LC018", Warning, where+".args",
			"lacks --sidecar %s: the restart of one app container then begins a drain, "+
				"and a request that hangs delays the restart until the last call", want)
	case (form == "native") != pod.IsNative(c):
		l.find("LC018", Error, where+".args",
			"--sidecar %s is wrong: native is an init container with restartPolicy Always, classic any other; "+
				"the agent mistakes the end of the pod for a container's restart", form)
	case form == "native" && hook == nil:
		l.find("LC018", Error, where+".lifecycle",
			"lacks a preStop: without its own hook the agent mistakes the end of the pod for a container's restart, "+
				"and the app receives SIGTERM within a second; add exec: {command: [/lastcall, wait, --sidecar]}")
	case form == "classic" && hook != nil:
		l.find("LC018", Error, where+".lifecycle.preStop",
			"delays the SIGTERM that signals the end of the pod to a classic sidecar: "+
				"the agent mistakes it for a container's restart; remove the hook")
	}
}

// hooksWait reports whether an app's preStop hook calls the agent.
func (l *linting) hooksWait() (found bool) {
	l.containers(func(c *corev1.Container, _ string) {
		h := pod.HookOf(c)
		_, isAgent := pod.AgentArguments(c)
		switch {
		case isAgent:
		case pod.IsWaitGet(h):
			found = true
		default:
			flags, isWait := pod.WaitFlags(h)
			found = found || isWait && !pod.HasNoAgent(flags)
		}
	})
	return found
}

// servers are parts of the names of images whose programs run until another one stops them, and the request with which
// the main container can do that.
var servers = []server{
	{"cloud-sql-proxy", "--quitquitquit, POST :9091/quitquitquit"},
	{"cloudsql-docker/gce-proxy", ""},
	{"alloydb-auth-proxy", "--quitquitquit, POST :9091/quitquitquit"},
	{"vault", "enable_quit in the agent's configuration, POST :8200/agent/v1/quit"},
	{"daprd", "POST :3500/v1.0/shutdown"},
	{"istio/proxyv2", "POST :15020/quitquitquit"},
	{"linkerd", "linkerd-await --shutdown, POST :4191/shutdown"},
	{"kuma", "POST :9901/quitquitquit"},
	{"consul-dataplane", "POST :20600/graceful_shutdown"},
	{"envoyproxy/envoy", "POST /quitquitquit of its admin port"},
	{"fluent-bit", ""}, {"fluentd", ""}, {"filebeat", ""}, {"promtail", ""}, {"vector", ""},
	{"opentelemetry-collector", ""}, {"otel-collector", ""}, {"otelcol", ""}, {"grafana/agent", ""},
	{"grafana/alloy", ""}, {"datadog/agent", ""}, {"telegraf", ""},
	{"statsd-exporter", ""}, {"pushgateway", ""}, {"pgbouncer", ""}, {"oauth2-proxy", ""}, {"tailscale", ""},
	{"docker:dind", ""}, {"-dind", ""}, {"cloudflared", ""}, {"redis", ""}, {"memcached", ""}, {"nginx", ""},
	{"haproxy", ""}, {"minio/minio", ""}, {"localstack", ""}, {"ambassador", ""}, {"spiffe-helper", ""},
}

type server struct{ image, quit string }

// quits are parts of the arguments with which a container ends another one, or itself.
var quits = []string{
	"quitquitquit", "/v1.0/shutdown", "agent/v1/quit", "/shutdown", "graceful_shutdown", "linkerd-await", "kill",
	"exit", "exit-after-auth", "scuttle",
}

// injectors are annotations that add an ordinary container, unless another setting prevents that, and the remedy.
var injectors = []struct {
	annotation, value string
	unless            func(*linting) bool
	remedy            string
}{
	{"dapr.io/enabled", "true", func(*linting) bool { return false },
		"POST :3500/v1.0/shutdown at the end of the main container"},
	{"vault.hashicorp.com/agent-inject", "true",
		func(l *linting) bool {
			return l.pod.Annotations["vault.hashicorp.com/agent-pre-populate-only"] == "true"
		},
		"set vault.hashicorp.com/agent-pre-populate-only: \"true\""},
	{"linkerd.io/inject", "enabled", func(l *linting) bool { return pod.LinkerdNative(l.pod) == "true" },
		"set config.linkerd.io/proxy-enable-native-sidecar: \"true\", or run linkerd-await --shutdown"},
	{"sidecar.istio.io/nativeSidecar", "false", func(l *linting) bool { return l.end.Mesh != pod.MeshIstio },
		"POST :15020/quitquitquit at the end of the main container, or \"true\""},
}

const neverEndsText = "a Job's pod ends when all its ordinary containers have ended"

// neverEnds: a Job is complete when each ordinary container has exited.
func (l *linting) neverEnds() {
	if !l.job {
		return
	}
	for _, i := range injectors {
		if l.pod.Annotations[i.annotation] == i.value && !i.unless(l) && !l.quitsBeside("") {
			l.find("LC039", Warning, "metadata.annotations["+i.annotation+"]",
				"adds a container that does not exit, and %s: %s", neverEndsText, i.remedy)
		}
	}
	l.containers(func(c *corev1.Container, where string) {
		if strings.HasPrefix(where, "spec.initContainers") {
			return
		}
		if pod.IsNative(c) {
			l.find("LC039", Error, where+".restartPolicy",
				"Always makes a sidecar of an init container only, and %s: move it to initContainers", neverEndsText)
			return
		}
		i := slices.IndexFunc(servers, func(s server) bool { return isImage(c.Image, s.image) })
		isEndless := i >= 0 && !runsAnother(c) || isForever(c)
		if len(l.pod.Spec.Containers) < 2 || !isEndless || containsAny(c, quits) || l.quitsBeside(c.Name) ||
			c.Name == pod.Sidecar && isInjected(l.pod) {
			return
		}
		remedy := "make it an init container with restartPolicy: Always, a native sidecar"
		if i >= 0 && servers[i].quit != "" {
			remedy += ", or let the main container end it (" + servers[i].quit + ")"
		}
		l.find("LC039", Warning, where, "does not exit, and %s: %s", neverEndsText, remedy)
	})
}

// isImage reports whether the name of an image contains a part at the beginning of a word.
func isImage(image, part string) bool {
	name, _, _ := strings.Cut("/"+image, "@")
	begins := func(before string) bool { return strings.Contains(name, before+part) }
	is := part[0] == '-' && begins("") || begins("/") || begins("-") || begins("_")
	return is && !strings.HasSuffix(name, "-init")
}

// runsAnother reports whether the command of a container is a client or a tool of its image, such as redis-cli.
func runsAnother(c *corev1.Container) bool {
	return containsAny(c, []string{"-cli", "psql", "migrate", "curl", "wget", "backup", "kv get", "mc "}) ||
		len(c.Command) > 0 && slices.Contains([]string{"sh", "bash", "/bin/sh", "/bin/bash"}, c.Command[0]) &&
			!isForever(c) && !containsAny(c, []string{"proxy", "agent", "nginx", "daemon", "server"})
}

// isForever reports whether a container's command waits without an end.
func isForever(c *corev1.Container) bool {
	return pod.IsIdle(c) || containsAny(c, []string{"while true", "while :"})
}

// quitsBeside reports whether another container ends a helper.
func (l *linting) quitsBeside(helper string) (found bool) {
	shares := pod.SharesProcesses(&l.pod.Spec)
	l.containers(func(c *corev1.Container, _ string) {
		found = found || c.Name != helper &&
			(containsAny(c, quits[:6]) || containsAny(c, []string{"scuttle"}) ||
				shares && containsAny(c, []string{"kill"}))
	})
	return found
}

func containsAny(c *corev1.Container, parts []string) bool {
	text := strings.Join(slices.Concat(c.Command, c.Args), " ")
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// asksInVain: a label that asks for an injection that is not possible.
func (l *linting) asksInVain() {
	for _, place := range []struct {
		name   string
		values map[string]string
	}{{"labels", l.pod.Labels}, {"annotations", l.pod.Annotations}} {
		if place.values[inject.AnnotationInject] != "true" || len(l.pod.Spec.Containers) == 0 {
			continue
		}
		if why := inject.Unfit(l.pod); why != "" {
			l.find("LC007", Warning, "metadata."+place.name+"["+inject.AnnotationInject+"]",
				"asks for an injection that is not possible: %s", why)
			return
		}
	}
}
