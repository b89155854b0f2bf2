package lint

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// readOperator takes the MeshConfig of an IstioOperator, or of the sail operator's Istio.
func (e *examination) readOperator(o *manifest.Object) {
	type meshConfig struct {
		MeshConfig map[string]any `json:"meshConfig"`
	}
	var operator struct {
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
	if text, err := yaml.Marshal(mesh); mesh != nil && err == nil {
		e.useMesh(o, string(text), path)
	}
}

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
		found("LC005", Warning, "."+s.Path,
			ignoredByNative+"; give the apps a preStop sleep, or use lastcall "+
				"(with --istio-sidecar classic this finding ends)")
	}
	grace := corev1.DefaultTerminationGracePeriodSeconds * time.Second
	if s := settings.TerminationDrain; s.IsSet() && !settings.ExitOnZero.Value && s.Value >= grace {
		found("LC003", Warning, "."+s.Path,
			"Istio's agent waits "+s.Value.String()+" in every pod, "+
				"and the default grace period is "+grace.String()+": SIGKILL comes first; use a shorter time")
	}
}
