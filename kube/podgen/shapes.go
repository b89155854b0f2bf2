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

var shapes = strings.Split(shapesYAML, "---\n")[1:]

// ofShape is the pod of a shape, with what a shape itself varies.
func (g generator) ofShape(i int) *corev1.Pod {
	p := &corev1.Pod{}
	set(p, shapes[i%len(shapes)])
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
