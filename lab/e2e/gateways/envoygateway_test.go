//go:build e2e

package gateways

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// TestEnvoyGateway runs Envoy Gateway with two Gateways: one with its shutdown manager, one with
// deploy/gateways/envoy-gateway.yaml.
func TestEnvoyGateway(t *testing.T) {
	peers.Need(t, "envoy-gateway") // make e2e-gateways builds it
	source := module(t, "envoy-gateway", "github.com/envoyproxy/gateway")
	n := newNamespace(t, "envoy-gateway")
	crds := filepath.Join(source, "charts/gateway-helm/charts/crds/crds")
	if _, err := n.TryKubectl("", "get", "crd", "gateways.gateway.networking.k8s.io"); err != nil {
		n.clusterWide(filepath.Join(crds, "gatewayapi-crds.yaml"))
	}
	n.clusterWide(filepath.Join(crds, "generated"))
	n.app()
	n.Apply(controlPlane(t, source, n.Name))
	n.Until("had the address of Envoy Gateway", func() error {
		_, err := n.TryKubectl("", "rollout", "status", "deployment", "envoy-gateway", "--timeout=5s")
		return err
	})
	// Envoy looks for the name with a dot at its end, which hostAliases may not have.
	address := n.Kubectl("get", "service", "envoy-gateway", "--output", "jsonpath={.spec.clusterIP}")
	n.Kubectl("create", "configmap", "hosts", "--from-literal", fmt.Sprintf("hosts=%s envoy-gateway.%s.svc.cluster.local.\n", address, n.Name))

	n.Apply(fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: %s}\nspec: {controllerName: lastcall.dev/%[1]s}\n", n.Name))
	n.forget("clusterrole,clusterrolebinding", n.Name+"-gateway-helm-envoy-gateway-role", n.Name+"-gateway-helm-envoy-gateway-rolebinding")
	n.forget("gatewayclass", n.Name)
	n.forget("gateway.gateway.networking.k8s.io", "--all") // Envoy Gateway releases the class once it has no Gateway
	ours := patch(t, "envoy-gateway.yaml")
	theirs := strings.Join([]string{
		"apiVersion: gateway.envoyproxy.io/v1alpha1", "kind: EnvoyProxy", "metadata:", "  name: theirs", "spec:", "  provider:", "    type: Kubernetes",
		"    kubernetes:", "      envoyDeployment:", "        patch:", "          type: StrategicMerge", "          value:", "            spec:",
		"              template:", "                spec:", "                  volumes:", "                  containers:",
		"                  - name: envoy", "                    volumeMounts:", "                  - name: shutdown-manager",
		"                    image: local/envoy-gateway:" + *tag, "",
	}, "\n")
	for name, proxy := range map[string]string{"theirs": theirs, "lastcall": ours} {
		proxy = strings.NewReplacer(
			"      envoyDeployment:\n", "      envoyService: {type: ClusterIP}\n      envoyDeployment:\n        container: {image: \"local/envoy:"+*tag+"\"}\n",
			"                  volumes:\n", "                  volumes:\n                  - {name: hosts, configMap: {name: hosts}}\n",
			"                    volumeMounts:\n                    - {name: lastcall, mountPath: /lastcall,", "                    volumeMounts:\n                    - {name: hosts, mountPath: /etc/hosts, subPath: hosts}\n                    - {name: lastcall, mountPath: /lastcall,",
			"                    volumeMounts:\n                  - name: shutdown", "                    volumeMounts:\n                    - {name: hosts, mountPath: /etc/hosts, subPath: hosts}\n                  - name: shutdown",
		).Replace(proxy)
		n.Apply(proxy + fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[1]s}
spec:
  gatewayClassName: %[2]s
  infrastructure:
    parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: %[1]s}
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: %[1]s}]
  rules: [{backendRefs: [{name: web, port: 80}], timeouts: {request: 0s}}]
`, name, n.Name))
	}
	of := func(name, form string) (*gateway, string) {
		g := &gateway{namespace: n, form: form, labels: "gateway.envoyproxy.io/owning-gateway-name=" + name, port: 10080}
		n.Until("deployed the Gateway "+name, func() error {
			g.deployment = n.Kubectl("get", "deployment", "--selector", g.labels, "--output", "jsonpath={.items[*].metadata.name}")
			if g.deployment == "" {
				return errors.New("it has no Deployment")
			}
			return nil
		})
		return g, n.Kubectl("get", "service", "--selector", g.labels, "--output", "jsonpath={.items[*].metadata.name}")
	}
	them, theirService := of("theirs", "Envoy Gateway's shutdown manager")
	us, ourService := of("lastcall", "Envoy Gateway with lastcall")
	compare(t, them, theirService, us, ourService)
}

// controlPlane renders Envoy Gateway's chart.
func controlPlane(t *testing.T, source, namespace string) string {
	t.Helper()
	chart := filepath.Join(t.TempDir(), "gateway-helm")
	must.Do(t, os.CopyFS(chart, os.DirFS(filepath.Join(source, "charts/gateway-helm"))))
	values, err := os.ReadFile(filepath.Join(chart, "values.tmpl.yaml"))
	must.Do(t, err)
	values = []byte(strings.NewReplacer("${GatewayImage}", "local/envoy-gateway:"+*tag, "${GatewayImagePullPolicy}", "IfNotPresent").Replace(string(values)))
	must.Do(t, os.WriteFile(filepath.Join(chart, "values.yaml"), values, 0o600))
	cmd := exec.Command("../../../bin/helm", "template", namespace, chart, "--namespace", namespace, "--set", "crds.enabled=false", "--set", "topologyInjector.enabled=false",
		"--set", "config.envoyGateway.gateway.controllerName=lastcall.dev/"+namespace)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render Envoy Gateway's chart (make e2e-gateways builds bin/helm): %v", err)
	}
	return string(out)
}
