package inject

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lastcall-dev/lastcall/kube/pod"
)

// apps are the containers that the kubelet ends when the pod ends: all except the
// proxies, lastcall's and those of meshes. Init containers are not among them.
func apps(spec *corev1.PodSpec) []*corev1.Container {
	return slices.DeleteFunc(pod.Each(spec.Containers), func(c *corev1.Container) bool { return pod.IsProxy(spec, c) })
}

// isOwn reports whether lastcall has added a container, by its name.
func isOwn(name string) bool {
	return name == pod.Sidecar || name == containerCapture || name == containerCopy
}

// container is one that lastcall adds, without any rights.
func (j *injection) container(name string, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: j.Image, ImagePullPolicy: j.PullPolicy, Args: args,
		Resources: j.resources(), SecurityContext: bound(),
	}
}

// probed are the containers whose probes the kubelet runs: the apps and their own native sidecars.
func probed(spec *corev1.PodSpec) []*corev1.Container {
	out := apps(spec)
	for _, c := range pod.Each(spec.InitContainers) {
		if pod.IsNative(c) && !pod.IsProxy(spec, c) {
			out = append(out, c)
		}
	}
	return out
}

// setVariable replaces or adds one variable; an empty value removes it.
func setVariable(c *corev1.Container, name, value string) {
	if value == "" {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		return
	}
	(*environment)(&c.Env).set(name, value)
}

// setDefault adds a variable unless the manifest has it.
func setDefault(c *corev1.Container, name, value string) {
	if _, isSet := pod.Variable(c, name); !isSet {
		setVariable(c, name, value)
	}
}

// addVolume adds a volume unless the pod has it.
func addVolume(spec *corev1.PodSpec, volume corev1.Volume) {
	if !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume.Name }) {
		spec.Volumes = append(spec.Volumes, *volume.DeepCopy())
	}
}

// resources are those of every added container, adapted to the class of this pod.
func (j *injection) resources() (r corev1.ResourceRequirements) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}
	}
	switch {
	case j.pod.Spec.Resources != nil:
		// The pod has resources as a whole (Kubernetes 1.34): those of its containers must not exceed them, and are optional.
	case isGuaranteed(&j.pod.Spec): // a class that decides about evictions and exclusive cores
		r.Requests, r.Limits = list("100m", "128Mi"), list("100m", "128Mi")
	default: // it uses some 15 MiB and little CPU; a CPU limit would only slow it down
		r.Requests = list("10m", "32Mi")
		r.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")}
	}
	return r
}

// sidecarResources are resources, overridden by the pod's annotations.
func (j *injection) sidecarResources() (corev1.ResourceRequirements, error) {
	r := j.resources()
	for _, override := range []struct {
		annotation string
		list       *corev1.ResourceList
		name       corev1.ResourceName
	}{
		{annotationCPU, &r.Requests, corev1.ResourceCPU},
		{annotationMemory, &r.Requests, corev1.ResourceMemory},
		{annotationCPULimit, &r.Limits, corev1.ResourceCPU},
		{annotationMemoryLimit, &r.Limits, corev1.ResourceMemory},
	} {
		text := j.pod.Annotations[override.annotation]
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() <= 0 {
			return r, fmt.Errorf("annotation %s is %q: must be a quantity, such as 100m of cpu or 64Mi of memory",
				override.annotation, text)
		}
		if *override.list == nil {
			*override.list = corev1.ResourceList{}
		}
		(*override.list)[override.name] = q
	}
	if j.pod.Spec.Resources != nil {
		for name := range r.Limits {
			// A limit without a request implies one, which may exceed the pod's resources.
			if _, isSet := r.Requests[name]; !isSet {
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
	for name, limit := range r.Limits {
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			if _, isLimitSet := j.pod.Annotations["lastcall.dev/"+string(name)+"-limit"]; isLimitSet {
				r.Requests[name] = limit // the API server refuses a request above the limit
			} else {
				r.Limits[name] = request
			}
		}
	}
	return r, nil
}

// isGuaranteed reports whether the requests of all containers equal their limits, for CPU and memory (a limit without a
// request implies one).
func isGuaranteed(spec *corev1.PodSpec) bool {
	for _, c := range pod.Containers(spec) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, ok := c.Resources.Limits[name]
			request, isSet := c.Resources.Requests[name]
			if !ok || limit.IsZero() || isSet && request.Cmp(limit) != 0 {
				return false
			}
		}
	}
	return true
}
