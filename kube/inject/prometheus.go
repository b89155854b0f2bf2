package inject

import (
	"encoding/json"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Prometheus' annotations, and Istio's which keeps them as they are.
const (
	prometheusScrape = "prometheus.io/scrape"
	prometheusPort   = "prometheus.io/port"
	prometheusPath   = "prometheus.io/path"
	prometheusScheme = "prometheus.io/scheme"
	prometheusMerge  = "prometheus.istio.io/merge-metrics"

	mergedPath = "/stats/prometheus"
)

// mergeMetrics points the pod's scrape at the agent, which asks the app in turn.
// As in Istio, a pod that says nothing is scraped from then on; unlike there, one
// that is scraped by TLS is left as it is, since the agent asks without.
func (j *injection) mergeMetrics() error {
	a := j.pod.Annotations
	status := strconv.Itoa(j.settings.StatusPort.Value)
	switch {
	case a[prometheusPort] == status: // pointed there before
		return nil
	case a[prometheusMerge] == "false", a[prometheusMerge] == "" && !isMergeOn(j.MeshConfig):
		return nil
	case a[prometheusScheme] != "" && a[prometheusScheme] != "http":
		j.note("%s is %s: the app is scraped past the sidecar, whose metrics are at :%s%s", prometheusScheme, a[prometheusScheme], status, mergedPath)
		return nil
	}
	if text, said := a[prometheusScrape]; said {
		if yes, err := strconv.ParseBool(text); err != nil || !yes {
			return nil
		}
		text, err := json.Marshal(struct {
			Scrape string `json:"scrape"`
			Path   string `json:"path"`
			Port   string `json:"port"`
		}{"true", a[prometheusPath], a[prometheusPort]})
		if err != nil {
			return err
		}
		j.env.setLiteral(variablePrometheus, string(text))
	}
	a[prometheusScrape], a[prometheusPort], a[prometheusPath] = "true", status, mergedPath
	return nil
}

// isMergeOn reads MeshConfig's enablePrometheusMerge; Istio's default is true.
func isMergeOn(text string) bool {
	var m struct {
		EnablePrometheusMerge *bool `json:"enablePrometheusMerge"`
	}
	if err := yaml.Unmarshal([]byte(text), &m); err != nil || m.EnablePrometheusMerge == nil {
		return !strings.Contains(text, "enablePrometheusMerge: false") // wrapped, as users paste it
	}
	return *m.EnablePrometheusMerge
}
