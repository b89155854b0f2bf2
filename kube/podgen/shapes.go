package podgen

import (
	_ "embed"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

//go:embed shapes.yaml
var shapesYAML string

var shapes = func() (all []*corev1.Pod) {
	for _, text := range strings.Split(shapesYAML, "---\n")[1:] {
		p := &corev1.Pod{}
		set(p, text)
		all = append(all, p)
	}
	return all
}()

// ofShape is the pod of a shape, with what a shape itself varies.
func (g generator) ofShape(i int) *corev1.Pod {
	p := shapes[i%len(shapes)].DeepCopy()
	shape := p.Labels["app.kubernetes.io/name"]
	p.APIVersion, p.Kind, p.Name = "v1", "Pod", fmt.Sprintf("%s-%d", shape, i)
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			v.PersistentVolumeClaim.ClaimName += "-" + p.Name
		}
	}
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	switch c := &p.Spec.Containers[0]; shape {
	case "ingress":
		if g.chance(.4) {
			for i := range c.Ports[:2] {
				c.Ports[i].HostPort = c.Ports[i].ContainerPort
			}
		}
	case "job":
		p.Spec.RestartPolicy = pick(g, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure)
		if g.chance(.5) {
			p.Spec.ActiveDeadlineSeconds = to(int64(3600))
		}
	case "grpc":
		c.ReadinessProbe.GRPC.Service = to(pick(g, "", "ready"))
	}
	return p
}

// set sets the fields that a YAML text has, in a pod or a part of one.
func set(into any, text string) {
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		panic(err)
	}
}

func httpGet(path string, at intstr.IntOrString) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: at}}
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
