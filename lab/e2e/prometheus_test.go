//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// scrapeEvery is how often the test's Prometheus reads the observer's metrics.
const scrapeEvery = time.Second

// prometheus is a real one, with the job of docs/observe.md.
type prometheus struct {
	t    *testing.T
	base string
}

// startPrometheus starts one with alerts, the content of a PrometheusRule, until the end of the test. Its data is in
// folder/data.
func startPrometheus(t *testing.T, folder string, alerts json.RawMessage) *prometheus {
	t.Helper()
	config := documentedScrape(t)
	config["global"] = map[string]any{"scrape_interval": scrapeEvery.String(), "evaluation_interval": scrapeEvery.String()}
	config["rule_files"] = []string{"alerts.yaml"}
	if err := os.WriteFile(filepath.Join(folder, "alerts.yaml"), alerts, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &prometheus{t: t, base: programtest.Prometheus(t, folder, config)}
	p.until("had the observer's metrics", func() error {
		all, err := p.query(`up{namespace="` + observerRelease + `", container="observer", node!=""} == 1`)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%d observers", len(all))
		}
		return err
	})
	return p
}

// documentedScrape is the configuration of docs/observe.md. Debian's Prometheus is built without Kubernetes discovery: its
// result is written into the job, with the labels that the discovery gives a container's port.
func documentedScrape(t *testing.T) map[string]any {
	t.Helper()
	page, err := os.ReadFile("../../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "\n    scrape_configs:\n")
	block, _, ends := strings.Cut(block, "\n\n")
	if !found || !ends {
		t.Fatal("docs/observe.md has no scrape_configs")
	}
	var jobs []map[string]any
	if err := yaml.Unmarshal([]byte(block), &jobs); err != nil || len(jobs) != 1 || jobs[0]["kubernetes_sd_configs"] == nil {
		t.Fatalf("the scrape_configs of docs/observe.md: %d jobs, %v", len(jobs), err)
	}
	pods, err := client.CoreV1().Pods(observerRelease).List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Running"})
	if err != nil {
		t.Fatal(err)
	}
	var targets []map[string]any
	for _, pod := range pods.Items {
		for _, c := range pod.Spec.Containers {
			for _, port := range c.Ports {
				targets = append(targets, map[string]any{
					"targets": []string{net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port.ContainerPort))},
					"labels": map[string]string{
						"__meta_kubernetes_namespace": pod.Namespace, "__meta_kubernetes_pod_name": pod.Name, "__meta_kubernetes_pod_node_name": pod.Spec.NodeName,
						"__meta_kubernetes_pod_container_name": c.Name, "__meta_kubernetes_pod_container_port_name": port.Name,
					},
				})
			}
		}
	}
	delete(jobs[0], "kubernetes_sd_configs")
	jobs[0]["static_configs"] = targets
	return map[string]any{"scrape_configs": jobs}
}

func (p *prometheus) until(what string, f func() error) {
	p.t.Helper()
	if err := nodetest.Await(patience, what, f); err != nil {
		p.t.Fatal(err)
	}
}

// api calls Prometheus' HTTP API and fills in data.
func (p *prometheus) api(path string, query neturl.Values, data any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.base+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s %v: %s", path, query, answer.Error)
	}
	return nil
}

// series is one of a result: its labels, and its values that are numbers.
type series struct {
	labels map[string]string
	values []float64
}

// last is the newest value; NaN without one.
func (s series) last() float64 {
	if len(s.values) == 0 {
		return math.NaN()
	}
	return s.values[len(s.values)-1]
}

// query is an instant query.
func (p *prometheus) query(text string) ([]series, error) {
	return p.result("query", neturl.Values{"query": {text}})
}

// graph is a query over the time since the beginning of the test, in which series without a number are left out.
func (p *prometheus) graph(text string, since time.Time) ([]series, error) {
	return p.result("query_range", neturl.Values{"query": {text}, "start": {timestamp(since)}, "end": {timestamp(time.Now())}, "step": {"1"}})
}

func timestamp(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

func (p *prometheus) result(path string, query neturl.Values) (all []series, err error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
			Values [][2]any
		}
	}
	if err := p.api(path, query, &data); err != nil {
		return nil, err
	}
	for _, one := range data.Result {
		s := series{labels: one.Metric}
		for _, v := range append(one.Values, one.Value) {
			text, _ := v[1].(string)
			if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) {
				s.values = append(s.values, f)
			}
		}
		if len(s.values) > 0 {
			all = append(all, s)
		}
	}
	return all, nil
}

// alerts are the names of those that are active, each with the proxies or reasons that they are about.
func (p *prometheus) alerts() (map[string][]string, error) {
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := p.api("alerts", nil, &data); err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, one := range data.Alerts {
		name := one.Labels["alertname"]
		all[name] = append(all[name], one.Labels["proxy"]+one.Labels["reason"]+" "+one.State)
	}
	return all, nil
}
