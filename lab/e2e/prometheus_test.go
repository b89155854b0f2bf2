//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// scrapeEvery is how often the test's Prometheus reads the observer's metrics.
const scrapeEvery = time.Second

// prometheus is a real one, with the job of docs/observe.md.
type prometheus struct {
	t   *testing.T
	api promapi.API
}

// startPrometheus starts one with alerts, the content of a PrometheusRule, until the end of the test. Its data is in
// folder/data.
func startPrometheus(t *testing.T, folder string, alerts json.RawMessage) *prometheus {
	t.Helper()
	config := documentedScrape(t)
	config["global"] = map[string]any{"scrape_interval": scrapeEvery.String(), "evaluation_interval": scrapeEvery.String()}
	config["rule_files"] = []string{"alerts.yaml"}
	must.Do(t, os.WriteFile(filepath.Join(folder, "alerts.yaml"), alerts, 0o600))
	connection, err := api.NewClient(api.Config{Address: prometheusURL(t, folder, config)})
	must.Do(t, err)
	p := &prometheus{t: t, api: promapi.NewAPI(connection)}
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
	must.Do(t, err)
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
	must.Do(t, err)
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
	must.Do(p.t, nodetest.Await(patience, what, f))
}

// series is one of a result: its labels, and its newest number.
type series struct {
	labels model.Metric
	last   float64
}

// query is an instant query.
func (p *prometheus) query(text string) (all []series, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	value, _, _, err := p.api.Query(ctx, text, time.Now())
	vector, _ := value.(model.Vector)
	for _, s := range vector {
		if !math.IsNaN(float64(s.Value)) {
			all = append(all, series{s.Metric, float64(s.Value)})
		}
	}
	return all, err
}

// graph is a query over the time since the beginning of the test, in which series without a number are left out.
func (p *prometheus) graph(text string, since time.Time) (all []series, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	value, _, _, err := p.api.QueryRange(ctx, text, promapi.Range{Start: since, End: time.Now(), Step: time.Second})
	matrix, _ := value.(model.Matrix)
	for _, s := range matrix {
		numbers := slices.DeleteFunc(s.Values, func(v model.SamplePair) bool { return math.IsNaN(float64(v.Value)) })
		if len(numbers) > 0 {
			all = append(all, series{s.Metric, float64(numbers[len(numbers)-1].Value)})
		}
	}
	return all, err
}

// alerts are the names of those that are active, each with the proxies or reasons that they are about.
func (p *prometheus) alerts() (map[model.LabelValue][]string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	active, err := p.api.Alerts(ctx)
	all := map[model.LabelValue][]string{}
	for _, one := range active.Alerts {
		name := one.Labels["alertname"]
		all[name] = append(all[name], fmt.Sprintf("%s%s %s", one.Labels["proxy"], one.Labels["reason"], one.State))
	}
	return all, err
}

// prometheusURL starts one with a configuration, whose files are in folder.
func prometheusURL(t *testing.T, folder string, config map[string]any) (url string) {
	t.Helper()
	program := peers.Need(t, "prometheus")
	file, address := filepath.Join(folder, "prometheus.yaml"), nettest.FreeAddress(t, "127.0.0.1")
	text, err := json.Marshal(config) // which is YAML
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	must.Do(t, err)
	server := exec.Command(program, "--config.file", file, "--storage.tsdb.path", filepath.Join(folder, "data"),
		"--web.listen-address", address, "--log.level", "warn")
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	must.Do(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil || t.Failed() {
			t.Errorf("Prometheus: %v\n%s", err, &log)
		}
	})
	return "http://" + address
}
