package podgen

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// variation is one of vary.yaml, which describes the fields.
type variation struct {
	Chance              float64
	Do                  string
	Spec, Container     json.RawMessage
	Labels, Annotations map[string]string
	OneOf, Each, All    []variation
}

//go:embed vary.yaml
var variationsYAML string

var variations = func() (all []variation) {
	set(&all, variationsYAML)
	return all
}()

// vary changes a pod, of its containers c.
func (g generator) vary(v variation, p *corev1.Pod, c *corev1.Container) {
	if v.Chance > 0 && !g.chance(v.Chance) {
		return
	}
	if v.Do == "no resources" {
		each(&p.Spec, func(c *corev1.Container) { c.Resources = corev1.ResourceRequirements{} })
	}
	if v.Container != nil {
		v.setContainer(c)
	}
	if v.Spec != nil {
		v.setSpec(&p.Spec)
	}
	maps.Copy(p.Labels, v.Labels)
	maps.Copy(p.Annotations, v.Annotations)
	for _, inner := range v.All {
		g.vary(inner, p, c)
	}
	if len(v.OneOf) > 0 {
		g.vary(pick(g, v.OneOf...), p, c)
	}
	if len(v.Each) > 0 {
		each(&p.Spec, func(c *corev1.Container) { g.vary(pick(g, v.Each...), p, c) })
	}
	switch v.Do {
	case "a user":
		c.SecurityContext.RunAsUser = to(pick[int64](g, 0, 1000, 1337))
	case "a host port":
		if len(c.Ports) > 0 {
			c.Ports[0].HostPort = int32(20000 + g.IntN(10000))
		}
	case "a node":
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{"karpenter.sh/capacity-type": pick(g, "spot", "on-demand")}
		}
	case "hooks":
		hooks(g, p)
	case "probes":
		probes(g, p)
	case "security":
		security(g, p)
	}
}

// setSpec appends containers, volumes and tolerations, and sets all other fields.
func (v variation) setSpec(spec *corev1.PodSpec) {
	was := *spec
	spec.InitContainers, spec.Containers, spec.Volumes, spec.Tolerations = nil, nil, nil, nil
	set(spec, string(v.Spec))
	spec.InitContainers = append(was.InitContainers, spec.InitContainers...)
	spec.Containers = append(was.Containers, spec.Containers...)
	spec.Volumes = append(was.Volumes, spec.Volumes...)
	spec.Tolerations = append(was.Tolerations, spec.Tolerations...)
}

// setContainer appends variables and mounts, and sets all other fields.
func (v variation) setContainer(c *corev1.Container) {
	was := *c
	c.Env, c.EnvFrom, c.VolumeMounts, c.SecurityContext = nil, nil, nil, nil
	set(c, string(v.Container))
	if c.SecurityContext == nil {
		c.SecurityContext = was.SecurityContext
	}
	c.Env, c.EnvFrom = append(was.Env, c.Env...), append(was.EnvFrom, c.EnvFrom...)
	c.VolumeMounts = append(was.VolumeMounts, c.VolumeMounts...)
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

func security(g generator, p *corev1.Pod) {
	s := &corev1.PodSecurityContext{FSGroup: to(int64(2000)), SupplementalGroups: []int64{3000}}
	s.RunAsUser = to(pick[int64](g, 0, 101, 1000, 1337, 65534))
	if g.chance(.3) {
		s.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	}
	if g.chance(.3) {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	}
	if p.Spec.SecurityContext == nil {
		p.Spec.SecurityContext = s
	}
}
