package inject

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultResources are what the sidecar asks for: it takes some 15 MiB and
// little time. There is no limit of CPU, which would only make it slow.
func DefaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
}

// guaranteed is what a pod of the class Guaranteed may have added and stay it: the
// class decides who is evicted first, and who may have cores of its own.
func guaranteed() corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	return corev1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
}

// resources of whatever is added: the cluster's, in the way of this pod.
func (j *injection) resources() corev1.ResourceRequirements {
	switch {
	case j.pod.Spec.Resources != nil:
		// The pod as a whole has a budget (Kubernetes 1.34): what its containers ask
		// for must not be more, and need not be said.
		return corev1.ResourceRequirements{}
	case isGuaranteed(&j.pod.Spec):
		return guaranteed()
	case j.Resources != nil:
		return *j.Resources.DeepCopy()
	}
	return DefaultResources()
}

// sidecarResources are resources, with what the pod says over them.
func (j *injection) sidecarResources() (corev1.ResourceRequirements, error) {
	r := j.resources()
	for _, said := range []struct {
		annotation string
		list       *corev1.ResourceList
		name       corev1.ResourceName
	}{
		{annotationCPU, &r.Requests, corev1.ResourceCPU},
		{annotationMemory, &r.Requests, corev1.ResourceMemory},
		{annotationCPULimit, &r.Limits, corev1.ResourceCPU},
		{annotationMemoryLimit, &r.Limits, corev1.ResourceMemory},
	} {
		text := j.pod.Annotations[said.annotation]
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Sign() <= 0 {
			return r, fmt.Errorf("annotation %s is %q: accepted is a quantity, such as 100m of cpu and 64Mi of memory", said.annotation, text)
		}
		if *said.list == nil {
			*said.list = corev1.ResourceList{}
		}
		(*said.list)[said.name] = q
	}
	if j.pod.Spec.Resources != nil {
		for name := range r.Limits {
			if _, said := r.Requests[name]; !said { // a limit alone is a request too, for which the pod's budget may have no room
				if r.Requests == nil {
					r.Requests = corev1.ResourceList{}
				}
				r.Requests[name] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
	}
	for name, limit := range r.Limits {
		if request, ok := r.Requests[name]; ok && request.Cmp(limit) > 0 {
			if _, isLimitSaid := j.pod.Annotations["lastcall.dev/"+string(name)+"-limit"]; isLimitSaid {
				r.Requests[name] = limit // the API server refuses a request above the limit
			} else {
				r.Limits[name] = request
			}
		}
	}
	return r, nil
}

// isGuaranteed says whether all containers ask for just what they are limited to, of
// CPU and memory (a limit alone is a request too).
func isGuaranteed(spec *corev1.PodSpec) bool {
	for _, c := range allContainers(spec) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, ok := c.Resources.Limits[name]
			request, said := c.Resources.Requests[name]
			if !ok || limit.IsZero() || said && request.Cmp(limit) != 0 {
				return false
			}
		}
	}
	return true
}
