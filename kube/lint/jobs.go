package lint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

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
	"quitquitquit", "/v1.0/shutdown", "agent/v1/quit", "/shutdown", "graceful_shutdown", "linkerd-await", "kill", "exit",
	"exit-after-auth", "scuttle",
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
	return (part[0] == '-' && begins("") || begins("/") || begins("-") || begins("_")) && !strings.HasSuffix(name, "-init")
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
			(containsAny(c, quits[:6]) || containsAny(c, []string{"scuttle"}) || shares && containsAny(c, []string{"kill"}))
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
