package podgen

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	{.02, func(g generator, p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = to(int64(0)) }},
	{.7, resources},
	{.06, func(g generator, p *corev1.Pod) { // for the whole pod, Kubernetes 1.32 and later
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("16", "64Gi"), Limits: quantities("32", "128Gi")}
	}},
	{.05, func(g generator, p *corev1.Pod) { // and with nothing to spare for a container more
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("1", "1Gi"), Limits: quantities("2", "2Gi")}
		each(&p.Spec, func(c *corev1.Container) { c.Resources = corev1.ResourceRequirements{} })
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("1", "1Gi"), Limits: quantities("2", "2Gi")}
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
	{.1, func(g generator, p *corev1.Pod) { p.Spec.ShareProcessNamespace = to(true) }},
	{.04, func(g generator, p *corev1.Pod) { p.Spec.HostNetwork = true }},
	{.04, func(g generator, p *corev1.Pod) { p.Spec.HostUsers = to(false) }},
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
	{.3, func(g generator, p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: "EMPTY"}, corev1.EnvVar{Name: "REFERS", Value: "$(EMPTY) and $$(NOT)"}, fieldEnv("POD_IP", "status.podIP"),
			corev1.EnvVar{Name: "CPUS", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1")}}})
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{Prefix: "X_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}, Optional: to(true)}})
	}},
	{.3, scheduling},
	{.05, func(g generator, p *corev1.Pod) { p.Spec.RuntimeClassName = to(RuntimeClass) }},
	{.1, func(g generator, p *corev1.Pod) {
		p.Spec.DNSPolicy = corev1.DNSNone
		p.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"10.96.0.10"}, Searches: []string{"svc.cluster.local"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: to("2")}}}
	}},
	{.1, func(g generator, p *corev1.Pod) {
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "10.0.0.9", Hostnames: []string{"old.example.com"}}}
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "target-health.elbv2.k8s.aws/ready"}}
		p.Spec.EnableServiceLinks, p.Spec.AutomountServiceAccountToken = to(false), to(false)
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	}},
	{.03, func(g generator, p *corev1.Pod) { // a port of the sidecar's own
		app(p, "other-proxy", "other:1", port("", pick[int32](g, 15020, 15006, 15001, 15000)))
	}},
	{.35, meshes},
	{.2, ours},
}

func resources(g generator, p *corev1.Pod) {
	each(&p.Spec, func(c *corev1.Container) {
		switch g.IntN(4) {
		case 0:
			c.Resources.Requests = quantities("100m", "128Mi")
		case 1: // Guaranteed, if all are
			c.Resources = corev1.ResourceRequirements{Requests: quantities("500m", "512Mi"), Limits: quantities("500m", "512Mi")}
		case 2:
			c.Resources = corev1.ResourceRequirements{Requests: quantities("10m", "32Mi"), Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi"), "example.com/gpu": resource.MustParse("1"), corev1.ResourceEphemeralStorage: resource.MustParse("2Gi")}}
			c.Resources.Requests["example.com/gpu"] = resource.MustParse("1")
		}
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
		switch g.IntN(5) {
		case 0:
			c.SecurityContext = strict()
		case 1:
			c.SecurityContext = &corev1.SecurityContext{Privileged: to(true)}
		case 2:
			c.SecurityContext = &corev1.SecurityContext{RunAsUser: to(pick[int64](g, 0, 1000, 1337)), RunAsGroup: to(int64(0)), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "SYS_TIME"}}}
		case 3:
			c.SecurityContext = &corev1.SecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}, SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}
		}
	})
}

func volumes(g generator, p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	if g.chance(.5) {
		volume(p, c, "scratch", "/scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}}})
		c.VolumeMounts[len(c.VolumeMounts)-1].SubPath = "inner"
	}
	if g.chance(.5) {
		volume(p, c, "shm", "/dev/shm", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: to(resource.MustParse("64Mi"))}})
	}
	if g.chance(.5) {
		projected(p, c, "everything", "/var/run/secrets/everything")
	}
	if g.chance(.3) { // where the agent's own would be mounted, in another container
		volume(p, c, "istio-podinfo", "/etc/istio/pod", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "annotations", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations"}}}}})
	}
}

func scheduling(g generator, p *corev1.Pod) {
	self := &metav1.LabelSelector{MatchLabels: p.Labels}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: self, MatchLabelKeys: []string{"pod-template-hash"}}}
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: self, TopologyKey: corev1.LabelHostname}}}}}
	p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "web", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: to(int64(60))})
	if g.chance(.3) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
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
