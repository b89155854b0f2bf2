//go:build e2e

package gateways

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// TestIstioGateway installs Istio's gateway chart twice: with Istio's own end, and with deploy/gateways/istio-values.yaml.
func TestIstioGateway(t *testing.T) {
	if _, err := client.AppsV1().Deployments("istio-system").Get(t.Context(), "istiod", metav1.GetOptions{}); err != nil {
		t.Skipf("no Istio on the node (make mesh-up installs it): %v", err)
	}
	folder, err := exec.Command("../../peers/istio/build").Output()
	if err != nil {
		t.Fatalf("find Istio's charts: %v", err)
	}
	n := newNamespace(t, "istio-gateways")
	n.app()
	chart := filepath.Join(strings.TrimSpace(string(folder)), "charts/gateway")
	file := filepath.Join(t.TempDir(), "values.yaml")
	must.Do(t, os.WriteFile(file, []byte(patch(t, "istio-values.yaml")), 0o600))
	install := func(name, form string, values ...string) *gateway {
		cmd := exec.Command("../../../bin/helm", append([]string{"template", name, chart, "--namespace", n.Name, "--values", "../mesh/gateway.yaml"}, values...)...)
		cmd.Stderr = os.Stderr
		manifest, err := cmd.Output()
		if err != nil {
			t.Fatalf("render Istio's chart (make e2e-gateways builds bin/helm): %v", err)
		}
		n.Apply(string(manifest))
		n.Apply(fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %[1]s}
spec:
  selector: {istio: %[1]s}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s}
spec:
  hosts: ["*"]
  gateways: [%[1]s]
  http: [{route: [{destination: {host: web, port: {number: 80}}}], retries: {attempts: 0}}]
`, name))
		return &gateway{namespace: n, form: form, deployment: name, labels: "app=" + name, port: 80}
	}
	compare(t, install("theirs", "Istio's gateway"), "theirs", install("ours", "Istio's gateway with lastcall", "--values", file), "ours")
}
