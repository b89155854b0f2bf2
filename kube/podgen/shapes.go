package podgen

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// shapes are what pods are of: what their charts have in common, in our own words.
var shapes = []struct {
	name string
	make func(generator, *corev1.Pod)
}{
	{"web", func(g generator, p *corev1.Pod) {
		app(p, "web", "web:1", port("http", 8080))
		httpProbes(&p.Spec.Containers[0], "/healthz", intstr.FromString("http"))
	}},
	{"postgres", func(g generator, p *corev1.Pod) {
		c := app(p, "postgresql", "postgresql:17", port("tcp-postgresql", 5432))
		ready := []string{"/bin/sh", "-c", "exec pg_isready -U postgres -h 127.0.0.1 -p 5432"}
		c.LivenessProbe, c.ReadinessProbe = execProbe(ready...), execProbe(ready...)
		c.Env = append(c.Env, secretEnv("POSTGRES_PASSWORD", "postgres", "password"))
		initContainer(p, "init-chmod-data", "os-shell:12", "sh", "-c", "chown -R 1001:1001 /data")
		claim(p, c, "data", "/data")
		p.Spec.TerminationGracePeriodSeconds = to(int64(120))
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: to(int64(1001)), FSGroupChangePolicy: to(corev1.FSGroupChangeOnRootMismatch)}
	}},
	{"redis", func(g generator, p *corev1.Pod) {
		c := app(p, "redis", "redis:8", port("redis", 6379))
		c.Command = []string{"redis-server", "/conf/redis.conf"}
		c.ReadinessProbe, c.StartupProbe = execProbe("sh", "-c", "/health/ping_readiness_local.sh 1"), tcpProbe(intstr.FromString("redis"))
		c.Lifecycle = &corev1.Lifecycle{PreStop: exec("redis-cli", "shutdown", "save")}
		configMap(p, c, "conf", "/conf")
		configMap(p, c, "health", "/health")
		app(p, "metrics", "redis-exporter:1", port("metrics", 9121))
	}},
	{"ingress", func(g generator, p *corev1.Pod) {
		c := app(p, "controller", "ingress-controller:1", port("http", 80), port("https", 443), port("metrics", 10254), port("webhook", 8443))
		httpProbes(c, "/healthz", intstr.FromInt32(10254))
		c.Lifecycle = &corev1.Lifecycle{PreStop: exec("/wait-shutdown")}
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: to(int64(101)), AllowPrivilegeEscalation: to(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}}}
		p.Spec.TerminationGracePeriodSeconds = to(int64(300))
		if g.chance(.4) {
			for i := range c.Ports[:2] {
				c.Ports[i].HostPort = c.Ports[i].ContainerPort
			}
		}
	}},
	{"prometheus", func(g generator, p *corev1.Pod) {
		c := app(p, "prometheus", "prometheus:3", port("http-web", 9090))
		httpProbes(c, "/-/healthy", intstr.FromString("http-web"))
		c.StartupProbe = &corev1.Probe{ProbeHandler: httpGet("/-/ready", intstr.FromString("http-web")), FailureThreshold: 60, PeriodSeconds: 15}
		emptyDir(p, c, "db", "/prometheus")
		app(p, "config-reloader", "reloader:1", port("reloader-web", 8080))
		initContainer(p, "init-config-reloader", "reloader:1", "/bin/reloader", "--watch-interval=0")
		p.Spec.TerminationGracePeriodSeconds = to(int64(600))
		p.Spec.ShareProcessNamespace = to(false)
	}},
	{"cert-manager", func(g generator, p *corev1.Pod) {
		c := app(p, "cert-manager-controller", "controller:1", port("http-metrics", 9402), port("http-healthz", 9403))
		httpProbes(c, "/livez", intstr.FromString("http-healthz"))
		c.SecurityContext = strict()
		c.Env = append(c.Env, fieldEnv("POD_NAMESPACE", "metadata.namespace"))
		p.Annotations["prometheus.io/scrape"], p.Annotations["prometheus.io/port"], p.Annotations["prometheus.io/path"] = "true", "9402", "/metrics"
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: to(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	}},
	{"argo", func(g generator, p *corev1.Pod) {
		c := app(p, "server", "argo:3", port("server", 8080), port("metrics", 8083))
		c.LivenessProbe, c.ReadinessProbe = &corev1.Probe{ProbeHandler: httpGet("/healthz?full=true", intstr.FromString("server"))}, &corev1.Probe{ProbeHandler: httpGet("/healthz", intstr.FromString("server"))}
		emptyDir(p, c, "tmp", "/tmp")
		projected(p, c, "tls", "/app/tls")
		initContainer(p, "copyutil", "argo:3", "sh", "-c", "cp -n /bin/argo /var/run/argo/")
	}},
	{"kafka", func(g generator, p *corev1.Pod) {
		c := app(p, "kafka", "kafka:4", port("client", 9092), port("controller", 9093), port("interbroker", 9094))
		c.LivenessProbe, c.ReadinessProbe = execProbe("pgrep", "-f", "kafka"), tcpProbe(intstr.FromString("controller"))
		c.Env = append(c.Env, fieldEnv("MY_POD_NAME", "metadata.name"))
		initContainer(p, "prepare-config", "kafka:4", "/bin/bash", "-ec", "cp /configmaps/* /config/")
		claim(p, c, "data", "/data")
		p.Spec.Hostname, p.Spec.Subdomain = "kafka-0", "kafka-headless"
	}},
	{"node-agent", func(g generator, p *corev1.Pod) {
		c := app(p, "node-exporter", "node-exporter:1", port("metrics", 9100))
		httpProbes(c, "/", intstr.FromInt32(9100))
		p.Spec.HostNetwork, p.Spec.HostPID = true, true
		p.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
		p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		hostPath(p, c, "root", "/host/root")
	}},
	{"logs", func(g generator, p *corev1.Pod) {
		c := app(p, "fluent-bit", "fluent-bit:4", port("http", 2020))
		httpProbes(c, "/api/v1/health", intstr.FromString("http"))
		configMap(p, c, "config", "/fluent-bit/etc")
		hostPath(p, c, "varlog", "/var/log")
	}},
	{"job", func(g generator, p *corev1.Pod) {
		app(p, "import", "import:1")
		p.Spec.RestartPolicy = pick(g, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)
		if g.chance(.5) {
			p.Spec.ActiveDeadlineSeconds = to(int64(3600))
		}
		native(p, "cloud-sql-proxy", "cloud-sql-proxy:2", port("pg", 5432))
	}},
	{"grafana", func(g generator, p *corev1.Pod) {
		c := app(p, "grafana", "grafana:12", port("grafana", 3000), udp("gossip", 9094))
		httpProbes(c, "/api/health", intstr.FromInt32(3000))
		emptyDir(p, c, "storage", "/var/lib/grafana")
		app(p, "sc-dashboard", "k8s-sidecar:1")
		p.Annotations["checksum/config"] = "01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b"
	}},
	{"windows", func(g generator, p *corev1.Pod) {
		app(p, "iis", "iis:2022", port("http", 80))
		p.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
		p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "windows"}
	}},
	{"grpc", func(g generator, p *corev1.Pod) {
		c := app(p, "api", "api:1", port("grpc", 50051), port("debug", 6060))
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 50051, Service: to(pick(g, "", "ready"))}}}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 50051}}, TerminationGracePeriodSeconds: to(int64(10))}
		native(p, "otel-agent", "otel:1", port("otlp", 4317))
	}},
	{"keycloak", func(g generator, p *corev1.Pod) {
		c := app(p, "keycloak", "keycloak:26", port("https", 8443), port("management", 9000))
		c.LivenessProbe = &corev1.Probe{ProbeHandler: httpGet("/health/live", intstr.FromString("management"))}
		c.LivenessProbe.HTTPGet.Scheme, c.LivenessProbe.HTTPGet.HTTPHeaders = corev1.URISchemeHTTPS, []corev1.HTTPHeader{{Name: "Host", Value: "sso.example.com"}, {Name: "X-Probe", Value: "a, b"}}
		c.Lifecycle = &corev1.Lifecycle{PostStart: exec("/bin/true"), PreStop: exec("/bin/sh", "-c", "sleep 15")}
	}},
}

// app adds a container; what it returns is good until the next is added.
func app(p *corev1.Pod, name, image string, ports ...corev1.ContainerPort) *corev1.Container {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: image, Ports: ports})
	return &p.Spec.Containers[len(p.Spec.Containers)-1]
}

func initContainer(p *corev1.Pod, name, image string, command ...string) {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, Image: image, Command: command})
}

func native(p *corev1.Pod, name, image string, ports ...corev1.ContainerPort) {
	p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, Image: image, Ports: ports, RestartPolicy: to(corev1.ContainerRestartPolicyAlways)})
}

func port(name string, n int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: n, Protocol: corev1.ProtocolTCP}
}

func udp(name string, n int32) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: n, Protocol: corev1.ProtocolUDP}
}

func httpGet(path string, at intstr.IntOrString) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: at}}
}

func httpProbes(c *corev1.Container, path string, at intstr.IntOrString) {
	c.LivenessProbe, c.ReadinessProbe = &corev1.Probe{ProbeHandler: httpGet(path, at), InitialDelaySeconds: 10}, &corev1.Probe{ProbeHandler: httpGet(path, at), PeriodSeconds: 5}
}

func execProbe(command ...string) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}, TimeoutSeconds: 5}
}

func tcpProbe(at intstr.IntOrString) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: at}}}
}

func exec(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

func secretEnv(name, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key, Optional: to(true)}}}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

func strict() *corev1.SecurityContext {
	return &corev1.SecurityContext{AllowPrivilegeEscalation: to(false), ReadOnlyRootFilesystem: to(true), RunAsNonRoot: to(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
}

func volume(p *corev1.Pod, c *corev1.Container, name, at string, source corev1.VolumeSource) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at})
}

func emptyDir(p *corev1.Pod, c *corev1.Container, name, at string) {
	volume(p, c, name, at, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
}

func configMap(p *corev1.Pod, c *corev1.Container, name, at string) {
	volume(p, c, name, at, corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: to(int32(0o555))}})
}

func hostPath(p *corev1.Pod, c *corev1.Container, name, at string) {
	volume(p, c, name, at, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var", Type: to(corev1.HostPathDirectory)}})
	c.VolumeMounts[len(c.VolumeMounts)-1].ReadOnly = true
}

func claim(p *corev1.Pod, c *corev1.Container, name, at string) {
	volume(p, c, name, at, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("%s-%s", name, p.Name)}})
}

func projected(p *corev1.Pod, c *corev1.Container, name, at string) {
	volume(p, c, name, at, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", ExpirationSeconds: to(int64(7200)), Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}, Optional: to(true)}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "tls"}, Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
	}}})
}

func quantities(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}
