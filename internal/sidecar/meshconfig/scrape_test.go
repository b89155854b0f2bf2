package meshconfig

import (
	"strings"
	"testing"
)

func TestScrapeTarget(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations string
		env         []string
		want        string
		warning     string
	}{
		{name: "nothing set"},
		{name: "annotations", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="8080"` + "\n" + `prometheus.io/path="/m"`, want: "http://127.0.0.1:8080/m"},
		{name: "defaults", annotations: `prometheus.io/scrape="true"`, want: "http://127.0.0.1:80/metrics"},
		{name: "disabled", annotations: `prometheus.io/scrape="false"` + "\n" + `prometheus.io/port="8080"`},
		{name: "our own port", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="15020"`},
		{name: "the injector's variable wins", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="1"`,
			env: []string{`ISTIO_PROMETHEUS_ANNOTATIONS={"scrape":"true","path":"metrics","port":"9100"}`}, want: "http://127.0.0.1:9100/metrics"},
		{name: "bad port", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/port="http"`, warning: "must be a port"},
		{name: "https", annotations: `prometheus.io/scrape="true"` + "\n" + `prometheus.io/scheme="https"`, warning: "must be http"},
		{name: "bad variable", env: []string{`ISTIO_PROMETHEUS_ANNOTATIONS=true`}, warning: "ISTIO_PROMETHEUS_ANNOTATIONS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Resolve(Input{Env: tt.env, AnnotationsFile: "annotations", ReadFile: func(string) ([]byte, error) { return []byte(tt.annotations), nil }})
			if err != nil {
				t.Fatal(err)
			}
			if s.ScrapeTarget.Value != tt.want {
				t.Errorf("target %q; want %q", s.ScrapeTarget.Value, tt.want)
			}
			var warnings []string
			for _, w := range s.Warnings {
				warnings = append(warnings, w.String())
			}
			if got := strings.Join(warnings, "\n"); tt.warning == "" && got != "" || !strings.Contains(got, tt.warning) {
				t.Errorf("warnings %q; want %q", got, tt.warning)
			}
		})
	}
}
