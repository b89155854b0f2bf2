package podgen

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// variations are done one after the other, each with its chance.
var variations = []struct {
	chance float64
	do     func(generator, *corev1.Pod)
}{
	{.5, func(g generator, p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = to(pick[int64](g, 1, 2, 5, 10, 30, 45, 60, 120, 300, 3600))
	}},
	{.02, part("killed")},
	{.7, resources},
	{.06, part("budget")}, // for the whole pod, Kubernetes 1.32 and later
	{.05, func(g generator, p *corev1.Pod) { // and with nothing to spare for a container more
		each(&p.Spec, func(c *corev1.Container) { c.Resources = corev1.ResourceRequirements{} })
		part("tight")(g, p)
	}},
	{.4, hooks},
	{.3, probes},
	{.3, containerSecurity},
	{.3, func(g generator, p *corev1.Pod) {
		s := &corev1.PodSecurityContext{RunAsUser: to(pick[int64](g, 0, 101, 1000, 1337, 65534)), FSGroup: to(int64(2000)), SupplementalGroups: []int64{3000}}
		if g.chance(.3) {
			s.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
		}
		if g.chance(.3) {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		}
		if p.Spec.SecurityContext == nil {
			p.Spec.SecurityContext = s
		}
	}},
	{.1, part("sharedProcesses")},
	{.04, part("hostNetwork")},
	{.04, part("userNamespace")},
	{.08, func(g generator, p *corev1.Pod) {
		if c := &p.Spec.Containers[0]; len(c.Ports) > 0 {
			c.Ports[0].HostPort = int32(20000 + g.IntN(10000))
		}
	}},
	{.12, func(g generator, p *corev1.Pod) { native(p, "vector", "vector:0", port("intake", 8686)) }},
	{.12, func(g generator, p *corev1.Pod) {
		initContainer(p, "wait-for-db", "busybox:1", "sh", "-c", "until nc -z db 5432; do sleep 1; done")
	}},
	{.15, func(g generator, p *corev1.Pod) { app(p, "oauth2-proxy", "oauth2-proxy:7", port("proxy", 4180)) }},
	{.25, volumes},
	{.3, part("variables")},
	{.3, scheduling},
	{.05, part("runtimeClass")},
	{.1, part("dns")},
	{.1, part("gates")},
	{.03, func(g generator, p *corev1.Pod) { // a port of the sidecar's own
		app(p, "other-proxy", "other:1", port("", pick[int32](g, 15020, 15006, 15001, 15000)))
	}},
	{.35, meshes},
	{.2, ours},
}

//go:embed vary.yaml
var partsYAML string

var parts = func() (all map[string]struct{ Spec, Container json.RawMessage }) {
	set(&all, partsYAML)
	return all
}()

// part is a variation that adds a part of vary.yaml. Its lists come after those of the pod.
func part(name string) func(generator, *corev1.Pod) {
	return func(_ generator, p *corev1.Pod) {
		spec, c := &p.Spec, &p.Spec.Containers[0]
		was, had := *spec, *c
		spec.Volumes, spec.Tolerations, c.Env, c.EnvFrom, c.VolumeMounts = nil, nil, nil, nil, nil
		set(spec, string(parts[name].Spec))
		set(c, string(parts[name].Container))
		spec.Volumes, spec.Tolerations = slices.Concat(was.Volumes, spec.Volumes), slices.Concat(was.Tolerations, spec.Tolerations)
		c.Env, c.EnvFrom = slices.Concat(had.Env, c.Env), slices.Concat(had.EnvFrom, c.EnvFrom)
		c.VolumeMounts = slices.Concat(had.VolumeMounts, c.VolumeMounts)
	}
}

func resources(g generator, p *corev1.Pod) {
	each(&p.Spec, func(c *corev1.Container) {
		set(&c.Resources, []string{
			`requests: {cpu: 100m, memory: 128Mi}`,
			`{requests: {cpu: 500m, memory: 512Mi}, limits: {cpu: 500m, memory: 512Mi}}`, // Guaranteed, if all are
			`
requests: {cpu: 10m, memory: 32Mi, example.com/gpu: "1"}
limits: {memory: 1Gi, example.com/gpu: "1", ephemeral-storage: 2Gi}`,
			``,
		}[g.IntN(4)])
	})
}

func hooks(g generator, p *corev1.Pod) {
	serving(&p.Spec, func(c *corev1.Container) {
		if g.chance(.4) || c.Lifecycle != nil {
			return
		}
		http := &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/shutdown", Port: intstr.FromInt32(8080), Scheme: pick(g, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)}}
		if len(c.Ports) > 0 && c.Ports[0].Name != "" && g.chance(.5) {
			http.HTTPGet.Port = intstr.FromString(c.Ports[0].Name)
		}
		c.Lifecycle = &corev1.Lifecycle{PreStop: pick(g,
			&corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: int64(1 + g.IntN(60))}}, http,
			&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}},
			exec("sh", "-c", fmt.Sprintf("sleep %d", g.IntN(60))), exec("/app/drain", "--wait"),
			exec("/bin/sh", "-c", "while [ $(netstat -plunt | grep tcp | wc -l) -ne 0 ]; do sleep 1; done"))}
		if g.chance(.2) {
			c.Lifecycle.PostStart = exec("true")
		}
	})
}

func probes(g generator, p *corev1.Pod) {
	serving(&p.Spec, func(c *corev1.Container) {
		if len(c.Ports) == 0 {
			return
		}
		first := c.Ports[0]
		at := intstr.FromInt32(first.ContainerPort)
		if first.Name != "" && g.chance(.5) {
			at = intstr.FromString(first.Name)
		}
		c.StartupProbe = pick(g, tcpProbe(at), execProbe("/bin/healthy"), &corev1.Probe{ProbeHandler: httpGet(pick(g, "/", "/ready?verbose=1", "/%20"), at), SuccessThreshold: 1, FailureThreshold: 90, TimeoutSeconds: 2})
		if g.chance(.3) {
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: pick(g, "", "127.0.0.1"), Port: at}}, SuccessThreshold: 2}
		}
	})
}

func containerSecurity(g generator, p *corev1.Pod) {
	each(&p.Spec, func(c *corev1.Container) {
		text := ""
		switch g.IntN(5) {
		case 0:
			text = `{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, runAsNonRoot: true, capabilities: {drop: [ALL]}}`
		case 1:
			text = `privileged: true`
		case 2:
			text = `{runAsUser: ` + pick(g, "0", "1000", "1337") + `, runAsGroup: 0, capabilities: {add: [NET_ADMIN, SYS_TIME]}}`
		case 3:
			text = `{appArmorProfile: {type: Unconfined}, seLinuxOptions: {level: "s0:c1,c2"}}`
		default:
			return
		}
		c.SecurityContext = nil
		set(&c.SecurityContext, text)
	})
}

func volumes(g generator, p *corev1.Pod) {
	for _, one := range []struct {
		chance float64
		part   string
	}{{.5, "scratch"}, {.5, "memory"}, {.5, "projected"}, {.3, "podInfo"}} {
		if g.chance(one.chance) {
			part(one.part)(g, p)
		}
	}
}

func scheduling(g generator, p *corev1.Pod) {
	part("spread")(g, p)
	if g.chance(.3) {
		part("queued")(g, p)
	}
	if p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{"karpenter.sh/capacity-type": pick(g, "spot", "on-demand")}
	}
}

// meshes are the words of others.
func meshes(g generator, p *corev1.Pod) {
	for _, said := range [][2]string{
		{"linkerd.io/inject", "enabled"},
		{"config.linkerd.io/shutdown-grace-period", "20s"},
		{"config.alpha.linkerd.io/proxy-wait-before-exit-seconds", "7"},
		{"kuma.io/sidecar-drain-time", "15s"},
		{"consul.hashicorp.com/connect-inject", "true"},
		{"consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds", "12"},
		{"dapr.io/enabled", "true"},
		{"sidecar.opentelemetry.io/inject", "true"},
		{"vault.hashicorp.com/agent-inject", "true"},
		{"prometheus.io/scrape", "true"},
		{"prometheus.io/port", "8080"},
	} {
		if g.chance(.3) {
			p.Annotations[said[0]] = said[1]
		}
	}
	switch g.IntN(8) {
	case 0:
		p.Annotations["proxy.istio.io/config"] = "drainDuration: 20s\nproxyMetadata:\n  EXIT_ON_ZERO_ACTIVE_CONNECTIONS: 'true'\n  MINIMUM_DRAIN_DURATION: 3s\n"
	case 1:
		p.Annotations["proxy.istio.io/config"] = `{"terminationDrainDuration":"12s","holdApplicationUntilProxyStarts":false,"concurrency":2}`
	case 2:
		p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"], p.Annotations["traffic.sidecar.istio.io/includeInboundPorts"] = "3306,6379", "*"
	case 3:
		p.Labels["sidecar.istio.io/inject"] = pick(g, "true", "false")
	case 4:
		p.Annotations["proxy.istio.io/config"] = "terminationDrainDuration: soon" // left alone
	}
}

// ours are words for lastcall.
func ours(g generator, p *corev1.Pod) {
	switch g.IntN(7) {
	case 0:
		p.Annotations["lastcall.dev/proxy"] = pick(g, "sockets", "pipe", "istio")
	case 1:
		p.Annotations["lastcall.dev/sidecar"] = pick(g, "classic", "native")
	case 2:
		p.Annotations["lastcall.dev/pre-stop"] = pick(g, "keep", "replace", "none")
	case 3:
		p.Annotations["lastcall.dev/quiet-time"], p.Annotations["lastcall.dev/memory-limit"] = "3s", "64Mi"
	case 4:
		p.Annotations["lastcall.dev/ignore-inbound-ports"] = "9090, 9091"
	case 5:
		p.Annotations["lastcall.dev/proxy"] = "nginx" // left alone
	case 6:
		p.Labels["lastcall.dev/inject"] = "false"
	}
}
