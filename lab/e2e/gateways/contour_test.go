//go:build e2e

package gateways

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// TestContour runs Contour with two Deployments of Envoy: one as in its manifests, one with deploy/gateways/contour.yaml.
func TestContour(t *testing.T) {
	peers.Need(t, "contour") // make e2e-gateways builds it
	source := module(t, "contour", "github.com/projectcontour/contour")
	n := newNamespace(t, "contour")
	n.clusterWide(filepath.Join(source, "examples/contour/01-crds.yaml"))
	n.app()
	n.forget("clusterrole,clusterrolebinding", "contour")

	// Their manifests, with our images. The node has no DNS, and two pods on one node cannot share a host port.
	manifest := func(files ...string) string {
		var all []string
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(source, "examples", file+".yaml"))
			must.Do(t, err)
			all = append(all, string(text))
		}
		out := strings.Join(all, "\n---\n")
		for from, to := range map[string]string{
			`namespace: projectcontour`:           "namespace: " + n.Name,
			`image: ghcr.io/projectcontour/.*`:    "image: local/contour:" + *tag,
			`image: docker.io/envoyproxy/envoy.*`: "image: local/envoy:" + *tag,
			` *hostPort: .*\n`:                    "",
		} {
			out = regexp.MustCompile(from).ReplaceAllString(out, to)
		}
		return out
	}
	n.Kubectl("create", "serviceaccount", "contour")
	n.Kubectl("create", "serviceaccount", "envoy")
	n.Apply(manifest("contour/01-contour-config", "contour/02-job-certgen", "contour/02-rbac", "contour/02-role-contour",
		"contour/02-service-contour", "contour/02-service-envoy", "contour/03-contour"))
	xds := n.Kubectl("get", "service", "contour", "--output", "jsonpath={.spec.clusterIP}")
	envoys := strings.ReplaceAll(manifest("deployment/03-envoy-deployment"), "--xds-address=contour", "--xds-address="+xds)
	n.Apply(envoys)
	n.Apply(strings.NewReplacer("name: envoy\n  namespace", "name: ours\n  namespace", "app: envoy", "app: ours").Replace(envoys))
	n.Kubectl("expose", "deployment", "ours", "--port", "80", "--target-port", "8080", "--name", "ours")
	file := filepath.Join(t.TempDir(), "patch.yaml")
	must.Do(t, os.WriteFile(file, []byte(patch(t, "contour.yaml")), 0o600))
	n.Kubectl("patch", "deployment", "ours", "--patch-file", file)
	n.Apply("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, annotations: {projectcontour.io/response-timeout: infinity}}\nspec: {defaultBackend: {service: {name: web, port: {number: 80}}}}\n")

	compare(t,
		&gateway{namespace: n, form: "Contour's shutdown manager", deployment: "envoy", labels: "app=envoy", port: 8080}, "envoy",
		&gateway{namespace: n, form: "Contour with lastcall", deployment: "ours", labels: "app=ours", port: 8080}, "ours")
}
