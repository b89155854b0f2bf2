//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lastcall-dev/lastcall/drain"
	kernel "github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
	"github.com/lastcall-dev/lastcall/kube/losses"
	"github.com/lastcall-dev/lastcall/kube/observe"
)

// run runs a command line in this process and returns its standard output.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// A real Prometheus scrapes an observer's metrics; observe report reads them from it.
func TestPrometheus(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := observe.NewMetrics(registry)
	metrics.Expect(observe.Key{Namespace: "shop", Workload: "deployment/web", Proxy: "none"})
	observer := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer observer.Close()

	url := programtest.Prometheus(t, t.TempDir(), map[string]any{
		"global":         map[string]any{"scrape_interval": "500ms"},
		"scrape_configs": []any{map[string]any{"job_name": "observer", "static_configs": []any{map[string]any{"targets": []string{strings.TrimPrefix(observer.URL, "http://")}}}}},
	})
	until := time.Now().Add(time.Minute)
	await := func(what string, f func() error) {
		t.Helper()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for err := f(); err != nil; err = f() {
			if time.Now().After(until) {
				t.Fatalf("%s: %v", what, err)
			}
			<-tick.C
		}
	}
	await("the counters at 0", func() error {
		response, err := http.Get(url + "/api/v1/query?query=lastcall_termination_tail_seconds_count")
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		var body bytes.Buffer
		if _, err := body.ReadFrom(response.Body); err != nil || !strings.Contains(body.String(), "deployment/web") {
			return fmt.Errorf("status %s, %w: %s", response.Status, err, &body)
		}
		return nil
	})
	// The last new connection came after 1.5 s; 3 s later no request was in flight, and after 1.5 s more the app exited.
	for range 20 {
		metrics.Count(&losses.Termination{Namespace: "shop", Workload: "deployment/web", Proxy: "none", Verdict: losses.Clean, Seconds: 6, Lateness: 1.5,
			Traffic: kernel.Termination{Idle: drain.Millis(1500 * time.Millisecond)}})
	}
	await("the workload in the report", func() error {
		report, err := run(t, "observe", "report", "--prometheus", url, "--range", "5m")
		if err == nil && !strings.Contains(report, "shop/deployment/web") {
			err = fmt.Errorf("not in\n%s", report)
		}
		return err
	})
}
