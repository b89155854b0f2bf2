package lint

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// readOperator takes the MeshConfig of an IstioOperator, or of the sail operator's Istio.
func (e *examination) readOperator(o *manifest.Object) {
	var operator struct {
		Spec struct {
			MeshConfig map[string]any `json:"meshConfig"`
			Values     struct {
				MeshConfig map[string]any `json:"meshConfig"`
			} `json:"values"`
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
	text, err := yaml.Marshal(mesh)
	if mesh != nil && err == nil {
		e.useMesh(o, string(text), path)
	}
}

// useMesh examines a MeshConfig of the input.
func (e *examination) useMesh(o *manifest.Object, text, path string) {
	e.result.Examined++
	settings, err := e.settings(o, path, text)
	if err == nil {
		e.meshes = append(e.meshes, text)
	}
	if s := settings.ExitOnZero; s.IsSet() && s.Value && e.Istio != inject.Classic && err == nil {
		e.found(o, o.String(), "", Finding{ID: "LC005", Severity: Warning, Path: path + "." + s.Path, Text: ignoredByNative + "; give the apps a preStop sleep, or use lastcall (with --istio-sidecar classic this finding ends)"})
	}
	grace := corev1.DefaultTerminationGracePeriodSeconds * time.Second
	if s := settings.TerminationDrain; s.IsSet() && !settings.ExitOnZero.Value && s.Value >= grace {
		e.found(o, o.String(), "", Finding{ID: "LC003", Severity: Warning, Path: path + "." + s.Path, Text: "Istio's agent waits " + s.Value.String() + " in every pod, and the default grace period is " + grace.String() + ": SIGKILL comes first; use a shorter time"})
	}
}

// isOfMesh: the mesh's own findings are reported once, not for each pod.
func isOfMesh(w meshconfig.Warning) bool { return w.Source.Origin == meshconfig.MeshFile }

// settings resolves the settings of an object at a path, and reports their errors and warnings.
func (e *examination) settings(o *manifest.Object, path, mesh string) (*meshconfig.Settings, error) {
	settings, err := inject.Resolve(mesh, nil, []string{"LASTCALL_COMPAT=istio"})
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			e.found(o, o.String(), "", Finding{ID: "LC007", Severity: Error, Path: path, Text: line})
		}
	}
	for _, w := range settings.Warnings {
		e.found(o, o.String(), "", Finding{ID: "LC007", Severity: Warning, Path: path + "." + w.Field, Text: w.Text})
	}
	return settings, err
}
