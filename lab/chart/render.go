package main

import (
	"fmt"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

const defaultNamespace = "lastcall-system"

// rendered has the objects of helm install.
type rendered struct {
	objects []object // in the order in which Helm applies them
	notes   string
}

// object is one manifest.
type object struct {
	template   string // its file in the chart
	apiVersion string
	kind       string
	name       string
	text       string
}

// render renders as helm template does: defaults, schema, templates, order.
func render(c *chart.Chart, values map[string]any, release, namespace string) (r rendered, err error) {
	options := common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, options, common.DefaultCapabilities)
	if err != nil {
		return r, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return r, err
	}
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			r.notes = text
			delete(files, name)
		}
	}
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return r, err
	}
	for _, m := range sorted {
		var head struct {
			APIVersion string
			Kind       string
			Metadata   struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(m.Content), &head); err != nil {
			return r, fmt.Errorf("%s: %w", m.Name, err)
		}
		r.objects = append(r.objects, object{m.Name, head.APIVersion, head.Kind, head.Metadata.Name, m.Content})
	}
	return r, nil
}
