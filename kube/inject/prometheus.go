package inject

import (
	"encoding/json"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
)

// Prometheus' annotations, and Istio's that keeps them unchanged.
const (
	prometheusScrape = "prometheus.io/scrape"
	prometheusPort   = "prometheus.io/port"
	prometheusPath   = "prometheus.io/path"
	prometheusScheme = "prometheus.io/scheme"
	prometheusMerge  = "prometheus.istio.io/merge-metrics"

	mergedPath = "/stats/prometheus"
)

// scrape is the pod's own, as the agent reads it.
type scrape struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
}

// mergeMetrics redirects the pod's scrape to the agent, which scrapes the app. As in Istio, a pod without annotations
// gets scraped; unlike in Istio, a scrape by TLS is unchanged, because the agent does not use TLS.
func (j *injection) mergeMetrics() error {
	a := j.pod.Annotations
	status := strconv.Itoa(j.settings.StatusPort.Value)
	switch {
	case a[prometheusPort] == status: // already redirected
		return nil
	case a[prometheusMerge] == "false", a[prometheusMerge] == "" && !isMergeOn(j.MeshConfig):
		return nil
	case a[prometheusScheme] != "" && a[prometheusScheme] != "http":
		j.note("%s is %s: Prometheus scrapes the app directly; the sidecar's metrics are at :%s%s",
			prometheusScheme, a[prometheusScheme], status, mergedPath)
		return nil
	}
	if text, isSet := a[prometheusScrape]; isSet {
		if yes, err := strconv.ParseBool(text); err != nil || !yes {
			return nil
		}
		text, err := json.Marshal(scrape{"true", a[prometheusPath], a[prometheusPort]})
		if err != nil {
			return err
		}
		j.env.set(meshconfig.VariablePrometheus, escape(string(text)))
	}
	a[prometheusScrape], a[prometheusPort], a[prometheusPath] = "true", status, mergedPath
	return nil
}

// isMergeOn reads MeshConfig's enablePrometheusMerge; Istio's default is true.
func isMergeOn(text string) bool {
	var m struct {
		EnablePrometheusMerge *bool `json:"enablePrometheusMerge"`
	}
	const name = "enablePrometheusMerge"
	if !strings.Contains(text, name) {
		return true
	}
	if err := yaml.Unmarshal([]byte(text), &m); err != nil || m.EnablePrometheusMerge == nil {
		return !strings.Contains(text, name+": false") // a ConfigMap's wrapper, as users paste it
	}
	return *m.EnablePrometheusMerge
}
