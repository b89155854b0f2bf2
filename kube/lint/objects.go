package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// read takes an object that others refer to.
func (e *examination) read(o *manifest.Object) {
	switch {
	case o.Is("", "Namespace"):
		e.namespaces[o.Name] = inject.Namespace{Name: o.Name, Labels: o.Labels, Annotations: o.Annotations}
	case o.Is("", "ConfigMap") && (o.Name == "istio" || strings.HasPrefix(o.Name, "istio-")):
		var c corev1.ConfigMap
		_ = o.Decode(&c) // its fields are not ours to judge
		if mesh, ok := c.Data["mesh"]; ok {
			e.useMesh(o, mesh, "data.mesh")
		}
	case o.Is("networking.istio.io", "ProxyConfig"):
		e.readProxyConfig(o)
	case o.Is("install.istio.io", "IstioOperator"), o.Is("sailoperator.io", "Istio"),
		o.Is("helm.toolkit.fluxcd.io", "HelmRelease"), o.Kind == manifest.Values:
		e.readOperator(o)
	case o.Is("", "Service"):
		e.result.Examined++
		s := &service{object: o}
		if err := o.Decode(&s.Service); err != nil {
			e.unreadable(o, err)
			return
		}
		e.services = append(e.services, s)
		at := [2]string{s.Namespace, s.Name}
		e.called[at] = append(e.called[at], s)
	}
}

// readWorkloads takes the pods of an object with their settings and their mesh.
func (e *examination) readWorkloads(o *manifest.Object) {
	all, err := o.Workloads()
	if why := o.Unread(all, err); why != "" {
		e.result.Notes = append(e.result.Notes, fmt.Sprintf("%s: %s %s", o.File.Name, o, why))
	}
	if err != nil {
		e.unreadable(o, err)
	}
	if err != nil || len(all) > 0 {
		e.result.Examined++
	}
	var spec struct {
		Spec struct {
			Replicas *int32 `json:"replicas"`
			Strategy struct {
				Type string `json:"type"`
			} `json:"strategy"`
		} `json:"spec"`
	}
	_ = o.Decode(&spec) // Workloads has read the pods; the rest is optional
	for _, base := range all {
		w := &workload{Workload: base, replicas: int(ptr.Deref(spec.Spec.Replicas, 1))}
		w.isRecreated = spec.Spec.Strategy.Type == "Recreate"
		namespace := e.namespaces[o.Namespace]
		namespace.Name = o.Namespace
		w.linting = newLinting(w.Pod, w.IsJob(),
			termination.Options{Namespace: namespace, MeshConfig: e.MeshConfig, Istio: e.Istio, Knative: w.IsKnative()})
		w.settings.Warnings = slices.DeleteFunc(w.settings.Warnings, func(w meshconfig.Warning) bool {
			return w.Source.Origin == meshconfig.MeshFile // reported once, not for each pod
		})
		e.workloads = append(e.workloads, w)
	}
}

// scaler is an object that sets or changes the number of a workload's pods.
type scaler struct {
	Spec struct {
		ScaleTargetRef reference `json:"scaleTargetRef"` // HorizontalPodAutoscaler, ScaledObject
		TargetRef      reference `json:"targetRef"`      // VerticalPodAutoscaler
		MaxReplicas    int       `json:"maxReplicas"`
		MaxCount       *int      `json:"maxReplicaCount"`
		Replicas       *int      `json:"replicas"`
		UpdatePolicy   struct {
			Mode string `json:"updateMode"`
		} `json:"updatePolicy"`
	} `json:"spec"`
}

// reference names a workload.
type reference struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// readScaler: a scaled workload has several replicas, at least under load; the updater evicts pods. A Rollout with a
// workloadRef has its own replicas of the Deployment's pods.
func (e *examination) readScaler(o *manifest.Object) {
	var s scaler
	switch {
	case o.Is("autoscaling", "HorizontalPodAutoscaler"), o.Is("keda.sh", "ScaledObject"),
		o.Is("autoscaling.k8s.io", "VerticalPodAutoscaler"), o.Is("argoproj.io", "Rollout"):
	default:
		return
	}
	if o.Decode(&s) != nil {
		return // the rest of its fields is not ours to judge
	}
	ref, why := s.Spec.ScaleTargetRef, ""
	switch o.Kind {
	case "HorizontalPodAutoscaler":
		why = fmt.Sprintf("up to %d replicas by the HorizontalPodAutoscaler", s.Spec.MaxReplicas)
	case "ScaledObject":
		ref.Kind = cmp.Or(ref.Kind, "Deployment")
		why = fmt.Sprintf("up to %d replicas by the ScaledObject", ptr.Deref(s.Spec.MaxCount, 100))
	case "VerticalPodAutoscaler":
		if ref = s.Spec.TargetRef; s.Spec.UpdatePolicy.Mode == "Off" || s.Spec.UpdatePolicy.Mode == "Initial" {
			return
		}
		why = "evicted by the VerticalPodAutoscaler"
	case "Rollout":
		var isFound bool
		if ref.Kind, ref.Name, isFound = o.TakesFrom(); !isFound {
			return
		}
		why = terminal.Count(ptr.Deref(s.Spec.Replicas, 1), "replica") + " of the Rollout " + o.Name
	}
	isMeant := false
	for _, w := range slices.Clone(e.named[[2]string{o.Namespace, ref.Name}]) {
		is := w.Kind == ref.Kind && w.Name == ref.Name || slices.Contains(w.takenBy, ref)
		if !is || !areNear(w.Object, o) {
			continue
		}
		isMeant = true
		w.scaled = append(w.scaled, why)
		if o.Kind == "Rollout" {
			w.takenBy = append(w.takenBy, reference{o.Kind, o.Name})
			at := [2]string{o.Namespace, o.Name}
			e.named[at] = append(e.named[at], w)
		}
	}
	if o.Kind == "Rollout" && !isMeant {
		e.result.Notes = append(e.result.Notes, fmt.Sprintf(
			"%s: %s takes its pods from the %s %s, which is not in the input: they are not examined",
			o.File.Name, o, ref.Kind, ref.Name))
	}
}

// readProxyConfig: its variables are those of proxyMetadata, and it has none of the fields of defaultConfig.
func (e *examination) readProxyConfig(o *manifest.Object) {
	var c struct {
		Spec map[string]any `json:"spec"`
	}
	_ = o.Decode(&c) // most of its fields are not ours to judge
	e.result.Examined++
	for _, name := range []string{"drainDuration", "terminationDrainDuration", "proxyMetadata"} {
		if c.Spec[name] != nil {
			e.found(o, o.String(), nil, Finding{ID: "LC007", Severity: Warning, Path: "spec." + name,
				Text: "is not a field of ProxyConfig: it belongs to meshConfig.defaultConfig, or to the annotation of the pods"})
		}
	}
	variables, _ := c.Spec["environmentVariables"].(map[string]any)
	if variables[meshconfig.VariableExitOnZero] == "true" && e.Istio != inject.Classic {
		e.found(o, o.String(), nil, Finding{ID: "LC005", Severity: Warning,
			Path: "spec.environmentVariables." + meshconfig.VariableExitOnZero, Text: ignoredByMesh})
	}
}

// readOperator takes the MeshConfig of an IstioOperator, of the sail operator's Istio, or of a chart's values.
func (e *examination) readOperator(o *manifest.Object) {
	type meshConfig struct {
		MeshConfig map[string]any `json:"meshConfig"`
	}
	var operator struct {
		meshConfig
		Spec struct {
			meshConfig
			Values meshConfig `json:"values"`
		} `json:"spec"`
	}
	if err := o.Decode(&operator); err != nil {
		e.result.Examined++
		e.unreadable(o, err)
		return
	}
	mesh, path := operator.Spec.MeshConfig, "spec.meshConfig"
	if mesh == nil {
		mesh, path = operator.Spec.Values.MeshConfig, "spec.values.meshConfig"
	}
	if o.Kind == manifest.Values {
		mesh, path = operator.MeshConfig, "meshConfig"
	}
	if text, err := yaml.Marshal(mesh); mesh != nil && err == nil {
		e.useMesh(o, string(text), path)
	}
}

const ignoredByMesh = ignoredByNative + "; give the apps a preStop sleep, or use lastcall " +
	"(with --istio-sidecar classic this finding ends)"

// useMesh examines a MeshConfig of the input.
func (e *examination) useMesh(o *manifest.Object, text, path string) {
	e.result.Examined++
	found := func(id string, severity Severity, field, text string) {
		e.found(o, o.String(), nil, Finding{ID: id, Severity: severity, Path: path + field, Text: text})
	}
	settings, err := inject.Resolve(text, nil, []string{"LASTCALL_COMPAT=istio"})
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			found("LC007", Error, "", line)
		}
	} else {
		e.meshes = append(e.meshes, text)
	}
	for _, w := range settings.Warnings {
		found("LC007", Warning, "."+w.Field, w.Text)
	}
	if s := settings.ExitOnZero; s.IsSet() && s.Value && e.Istio != inject.Classic && err == nil {
		found("LC005", Warning, "."+s.Path, ignoredByMesh)
	}
	grace := corev1.DefaultTerminationGracePeriodSeconds * time.Second
	if s := settings.TerminationDrain; s.IsSet() && !settings.ExitOnZero.Value && s.Value >= grace {
		found("LC003", Warning, "."+s.Path,
			"Istio's agent waits "+s.Value.String()+" in every pod, "+
				"and the default grace period is "+grace.String()+": SIGKILL comes first; use a shorter time")
	}
}
