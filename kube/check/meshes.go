package check

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	nextToIstio = "pods with istio-proxy get no second proxy: the app's preStop watches Istio's Envoy and delays the SIGTERM"
	nextToMesh  = "pods of the mesh get no second proxy: the app's preStop watches its sockets and delays the SIGTERM"
)

// meshInjectors are the webhook configurations of service meshes, by the beginning of their names.
var meshInjectors = []struct{ prefix, mesh, what, page string }{
	{"istio-sidecar-injector", "Istio", nextToIstio, "istio.md"},
	{"istio-revision-tag", "Istio", nextToIstio, "istio.md"},
	{"linkerd-proxy-injector", "linkerd", nextToMesh, "linkerd.md"},
	{"consul", "Consul", nextToMesh, "linkerd.md"},
	{"kuma-", "Kuma", nextToMesh, "linkerd.md"},
	{"dapr-sidecar-injector", "Dapr", nextToMesh, "linkerd.md"},
}

// meshes finds other products that inject, and Istio's ambient mesh, which has no injector.
func (c *checker) meshes() {
	c.group("Other meshes")
	var names []string
	ambient := 0
	if !c.look("other meshes are listed", func(ctx context.Context) error {
		list, err := c.Admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range list.Items {
			names = append(names, one.Name)
		}
		namespaces, err := c.Core.Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "istio.io/dataplane-mode=ambient"})
		if err != nil {
			return err
		}
		ambient = len(namespaces.Items)
		return nil
	}) {
		return
	}
	seen := map[string]bool{}
	for _, name := range names {
		for _, m := range meshInjectors {
			if !strings.HasPrefix(name, m.prefix) || seen[m.mesh] {
				continue
			}
			seen[m.mesh] = true
			c.add(Check{Name: m.mesh + " is installed", Status: OK, Detail: m.what, Page: m.page})
		}
	}
	if ambient > 0 {
		c.add(Check{Name: "Istio's ambient mesh is in use", Status: OK, Detail: fmt.Sprintf("%d namespaces; %s", ambient, nextToMesh), Page: "istio.md"})
	}
	if len(seen)+ambient == 0 {
		c.ok("no other mesh injects into pods", "")
	}
}
