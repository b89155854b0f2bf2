//go:build e2e

package gateways

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// TestEnvoy runs a Deployment of Envoys with the configuration of docs/envoy.md: one without a hook, and one with
// deploy/gateways/envoy.yaml.
func TestEnvoy(t *testing.T) {
	n := newNamespace(t, "envoy")
	n.app()
	page, err := os.ReadFile("../../../docs/envoy.md")
	must.Do(t, err)
	_, example, found := strings.Cut(string(page), "```yaml\n")
	example, _, ended := strings.Cut(example, "```")
	if !found || !ended {
		t.Fatal("docs/envoy.md has no example")
	}
	example = strings.ReplaceAll(example, "envoyproxy/envoy:v1.40.0", "local/envoy:"+*tag)
	// The node has no DNS.
	address := n.Kubectl("get", "service", "web", "--output", "jsonpath={.spec.clusterIP}")
	example = strings.ReplaceAll(example, "address: web,", fmt.Sprintf("address: %s,", address))
	n.Apply(example)
	n.Apply(strings.NewReplacer("name: envoy}", "name: ours}", "app: envoy", "app: ours").Replace(example))
	file := filepath.Join(t.TempDir(), "patch.yaml")
	must.Do(t, os.WriteFile(file, []byte(patch(t, "envoy.yaml")), 0o600))
	n.Kubectl("patch", "deployment", "ours", "--patch-file", file)
	compare(t,
		&gateway{namespace: n, form: "Envoy without a hook", deployment: "envoy", labels: "app=envoy", port: 8080}, "envoy",
		&gateway{namespace: n, form: "Envoy with lastcall", deployment: "ours", labels: "app=ours", port: 8080}, "ours")
}
