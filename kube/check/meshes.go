package check

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// meshInjectors are the webhook configurations of service meshes, by the beginning of their names.
var meshInjectors = []struct{ prefix, mesh, what, page string }{
	{"istio-sidecar-injector", "Istio", "pods with istio-proxy get no second proxy; lastcall sets EXIT_ON_ZERO_ACTIVE_CONNECTIONS and delays the app's SIGTERM", "istio.md"},
	{"istio-revision-tag", "Istio", "pods with istio-proxy get no second proxy; lastcall sets EXIT_ON_ZERO_ACTIVE_CONNECTIONS and delays the app's SIGTERM", "istio.md"},
	{"linkerd-proxy-injector", "linkerd", "two proxies cannot capture one pod: set lastcall.dev/proxy: sockets on pods with linkerd", "linkerd.md"},
	{"consul", "Consul", "two proxies cannot capture one pod: set lastcall.dev/proxy: sockets on pods of the mesh", "linkerd.md"},
	{"kuma-", "Kuma", "two proxies cannot capture one pod: set lastcall.dev/proxy: sockets on pods of the mesh", "linkerd.md"},
}

// meshes finds other products that inject.
func (c *checker) meshes() {
	c.group("Other meshes")
	var names []string
	if !c.look("other meshes are listed", func(ctx context.Context) error {
		list, err := c.Admission.MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range list.Items {
			names = append(names, one.Name)
		}
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
			status := OK
			if m.mesh != "Istio" {
				status = Warning
			}
			c.add(Check{Name: m.mesh + " is installed", Status: status, Detail: m.what, Page: m.page})
		}
	}
	if len(seen) == 0 {
		c.ok("no other mesh injects into pods", "")
	}
}
