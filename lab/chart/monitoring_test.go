package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// promtool runs Prometheus' own checks.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(peers.Need(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, file string, content any) string {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	must.Do(t, err)
	return file
}

// TestAlerts runs testdata/alerts.yaml, unit tests of promtool, against the rules of the chart.
func TestAlerts(t *testing.T) {
	folder := t.TempDir()
	for _, o := range rendering(t, choices["monitoring"]...).objects {
		if o.kind == "PrometheusRule" {
			write(t, filepath.Join(folder, "rules.yaml"), decode[monitoring.PrometheusRule](t, o).Spec)
		}
	}
	tests, err := os.ReadFile("testdata/alerts.yaml")
	must.Do(t, err)
	must.Do(t, os.WriteFile(filepath.Join(folder, "alerts.yaml"), tests, 0o600))
	promtool(t, "check", "rules", filepath.Join(folder, "rules.yaml"))
	promtool(t, "test", "rules", filepath.Join(folder, "alerts.yaml"))
}

// panel has the fields of a panel that these tests read.
type panel struct {
	ID      int
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ RefID, Expr string }
}

// TestDashboard checks the panels' places and has promtool parse their queries, as rules.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		UID    string
		Panels []panel
	}
	for _, o := range rendering(t, choices["monitoring"]...).objects {
		if o.kind != "ConfigMap" || !strings.Contains(o.name, "dashboard") {
			continue
		}
		m := decode[corev1.ConfigMap](t, o)
		if m.Labels["grafana_dashboard"] != "1" {
			t.Errorf("Grafana's sidecar does not find it: labels %v", m.Labels)
		}
		must.Do(t, json.Unmarshal([]byte(m.Data["lastcall-terminations.json"]), &dashboard))
	}
	if dashboard.UID == "" || len(dashboard.Panels) == 0 {
		t.Fatalf("no dashboard: %+v", dashboard)
	}
	variables := strings.NewReplacer("$namespace", ".*", "$workload", ".*", "$__range", "1h", "$__rate_interval", "2m")
	var rules []map[string]string
	cells, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s: id %d twice, or beyond the 24 columns", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[at]; other != "" {
					t.Fatalf("%s covers %s", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
		for _, q := range p.Targets {
			expr := variables.Replace(q.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: a variable that this test does not know: %s", p.Title, expr)
			}
			rules = append(rules, map[string]string{"record": fmt.Sprintf("panel:%d:%s", p.ID, q.RefID), "expr": expr})
		}
	}
	file := write(t, filepath.Join(t.TempDir(), "panels.yaml"), map[string]any{"groups": []any{map[string]any{"name": "panels", "rules": rules}}})
	promtool(t, "check", "rules", file)
}
