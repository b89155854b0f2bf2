package lint

import (
	"slices"
	"strings"

	autoscaling "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// read takes an object that others refer to.
func (e *examination) read(o *manifest.Object) {
	switch {
	case o.Is("", "Namespace"):
		e.namespaces[o.Name] = inject.Namespace{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}
	case o.Is("", "ConfigMap"):
		e.readConfigMap(o)
	case o.Is("install.istio.io", "IstioOperator"), o.Is("sailoperator.io", "Istio"):
		e.readOperator(o)
	case o.Is("", "Service"):
		e.result.Examined++
		s := &service{object: o}
		if err := o.Decode(&s.Service); err != nil {
			e.unreadable(o, err)
			return
		}
		e.services = append(e.services, s)
	}
}

// readConfigMap takes the MeshConfig of Istio's ConfigMap.
func (e *examination) readConfigMap(o *manifest.Object) {
	var c corev1.ConfigMap
	if o.Decode(&c) != nil {
		return // its fields are not ours to judge
	}
	if mesh, ok := c.Data["mesh"]; ok && (o.Name == "istio" || strings.HasPrefix(o.Name, "istio-")) {
		e.useMesh(o, mesh, "data.mesh")
	}
}

// knativeTimeout is timeoutSeconds if it is not set (Knative's config-defaults, revision-timeout-seconds). Knative
// makes it the grace period of its pods.
const knativeTimeout = 300

// readWorkload takes a pod with its settings and its mesh.
func (e *examination) readWorkload(o *manifest.Object) {
	base, err := o.Workload()
	if err != nil {
		e.result.Examined++
		e.unreadable(o, err)
		return
	}
	if base == nil {
		return
	}
	e.result.Examined++
	w := &workload{Workload: base, object: o}
	var spec struct {
		Spec struct {
			Replicas *int32 `json:"replicas"`
			Strategy struct {
				Type string `json:"type"`
			} `json:"strategy"`
			Template struct {
				Spec struct {
					Timeout *int64 `json:"timeoutSeconds"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	_ = o.Decode(&spec) // ReadWorkload has read the pod; the rest is optional
	w.isReplicated, w.isRecreated = ptr.Deref(spec.Spec.Replicas, 1) >= 2, spec.Spec.Strategy.Type == "Recreate"
	if w.IsKnative() {
		w.Pod.Spec.TerminationGracePeriodSeconds = ptr.To(ptr.Deref(spec.Spec.Template.Spec.Timeout, knativeTimeout))
	}
	w.linting = newLinting(w.Pod, w.IsJob(), e.MeshConfig)
	w.settings.Warnings = slices.DeleteFunc(w.settings.Warnings, func(w meshconfig.Warning) bool {
		return w.Source.Origin == meshconfig.MeshFile // reported once, not for each pod
	})
	namespace := e.namespaces[o.Namespace]
	namespace.Name = o.Namespace
	w.end = termination.Of(w.Pod, termination.Options{Namespace: namespace, MeshConfig: e.MeshConfig, Istio: e.Istio})
	e.workloads = append(e.workloads, w)
}

// readAutoscaler: a scaled workload has several replicas, at least under load.
func (e *examination) readAutoscaler(o *manifest.Object) {
	var a autoscaling.HorizontalPodAutoscaler
	if err := o.Decode(&a); err != nil {
		return // versions before v2 differ in fields that are not read here
	}
	for _, w := range e.workloads {
		if areNear(w.object, o) && w.Kind == a.Spec.ScaleTargetRef.Kind && w.Name == a.Spec.ScaleTargetRef.Name {
			w.isReplicated = true
		}
	}
}

// below is the prefix of the paths of the pod's fields.
func (w *workload) below() string {
	below := ""
	for _, key := range w.Path {
		below += key + "."
	}
	return below
}
