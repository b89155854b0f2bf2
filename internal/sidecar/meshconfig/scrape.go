package meshconfig

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
)

// The annotations that make a pod a scrape target. Istio's injector moves them to the variable and points the
// annotations at the merged metrics of the status port.
const (
	annotationScrape = "prometheus.io/scrape"
	annotationPort   = "prometheus.io/port"
	annotationPath   = "prometheus.io/path"
	annotationScheme = "prometheus.io/scheme"
)

// scrapeTarget is the URL of the app's own metrics: the variable overrides the annotations. An invalid value is a
// warning: metrics stop no pod. statusPort is ours: it means the merged metrics, not an app.
func (r *resolver) scrapeTarget(statusPort int) Value[string] {
	source := Source{Origin: Annotation, Name: annotationScrape}
	target := struct{ Scrape, Port, Path, Scheme string }{
		r.annotations[annotationScrape], r.annotations[annotationPort], r.annotations[annotationPath],
		r.annotations[annotationScheme],
	}
	if text := r.env[VariablePrometheus]; text != "" {
		source = Source{Origin: Environment, Name: VariablePrometheus}
		target = struct{ Scrape, Port, Path, Scheme string }{}
		if err := json.Unmarshal([]byte(text), &target); err != nil {
			r.warn(source, VariablePrometheus, `%s is not used: must be {"scrape":"true","port":"8080","path":"/metrics"}: %v`,
				brief(text), err)
			return Value[string]{}
		}
	}
	if yes, _ := strconv.ParseBool(target.Scrape); !yes {
		return Value[string]{}
	}
	if target.Port == "" {
		target.Port = "80" // Istio's agent's default
	}
	port, err := strconv.ParseUint(target.Port, 10, 16)
	switch {
	case err != nil || port == 0:
		r.warn(source, annotationPort, "%s is not used, the app's metrics are not merged: must be a port, 1 to 65535",
			brief(target.Port))
		return Value[string]{}
	case int(port) == statusPort:
		return Value[string]{}
	case target.Scheme != "" && target.Scheme != "http":
		r.warn(source, annotationScheme, "%s is not used, the app's metrics are not merged: must be http", brief(target.Scheme))
		return Value[string]{}
	}
	path := "/" + strings.TrimPrefix(target.Path, "/")
	if target.Path == "" {
		path = "/metrics"
	}
	return Value[string]{Value: "http://" + net.JoinHostPort("127.0.0.1", target.Port) + path, Source: source,
		Path: annotationScrape}
}
