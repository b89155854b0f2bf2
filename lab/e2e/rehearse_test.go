//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// TestRehearseCluster rehearses rollouts through a Service's ClusterIP: bare pods lose requests, those with lastcall none.
// Requests take longer than a busy kubelet needs for SIGTERM, until which a bare pod answers.
func TestRehearseCluster(t *testing.T) {
	t.Parallel()
	for _, injected := range []bool{false, true} {
		t.Run(map[bool]string{false: "bare", true: "lastcall"}[injected], func(t *testing.T) {
			t.Parallel()
			labels := map[string]string{"lastcall.dev/inject": "false"}
			if injected {
				labels = nil
			}
			n := newNamespace(t, labels)
			n.Apply(app{name: "web", replicas: 2}.manifest())
			n.Available("web")
			service, err := n.TryKubectl("", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
			must.Do(t, err)
			cmd := exec.CommandContext(t.Context(), lastcallctl, "rehearse", "cluster", "deploy/web", "-n", n.Name, "--url", "http://"+service,
				"--request", "GET /delay/8", "--request", "3 GET /get", "--load", "20/s", "--limit", patience.String(), "--yes", "-o", "json")
			text, err := cmd.Output()
			var exit *exec.ExitError
			if errors.As(err, &exit) && len(text) == 0 {
				t.Fatalf("%v: %s", err, exit.Stderr)
			}
			var r outcome.Result
			if err := json.Unmarshal(text, &r); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			row := r.Rows[0]
			t.Logf("lost %d of %d in %d ms: %v; %+v", row.Lost, row.Requests, r.TookMS, row.Reasons, row.Runs[0].Pods)
			if r.OK != injected || (row.Lost == 0) != injected || row.Faults > 0 || (err == nil) != injected {
				t.Errorf("lost %d, exit code %v: %+v", row.Lost, err, row.Losses)
			}
			ended := 0
			for _, p := range row.Runs[0].Pods {
				if p.DeletedMS >= 0 && p.EndedMS >= p.DeletedMS && p.GoneMS >= p.EndedMS {
					ended++
				}
			}
			if ended != 2 {
				t.Errorf("the ends of %d of 2 pods were seen", ended)
			}
		})
	}
}
