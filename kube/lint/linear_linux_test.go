package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// alike has n objects with one label in one namespace: Deployments with Services, and what scales them.
func alike(n int, form string) []byte {
	var b strings.Builder
	for i := range n / 2 {
		name, port, more := fmt.Sprint("web-", i), 8080, ""
		switch form {
		case "one name":
			name = "web"
		case "ports":
			port += i
		case "selectors":
			more = fmt.Sprintf(", part: p%d", i)
		}
		fmt.Fprintf(&b, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s, namespace: shop}\n"+
			"spec: {replicas: 2, template: {metadata: {labels: {app: web%s}}, spec: {containers: [{name: web, image: web, "+
			"ports: [{containerPort: %d}], lifecycle: {preStop: {sleep: {seconds: 5}}}}]}}}\n", name, more, port)
		switch form {
		case "scaled":
			fmt.Fprintf(&b, "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\n"+
				"metadata: {name: %s, namespace: shop}\n"+
				"spec: {maxReplicas: 5, scaleTargetRef: {kind: Deployment, name: web-1}}\n", name)
		case "ingresses":
			fmt.Fprintf(&b, "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %s, namespace: shop, "+
				"annotations: {alb.ingress.kubernetes.io/target-type: ip}}\n"+
				"spec: {ingressClassName: alb, defaultBackend: {service: {name: web, port: {number: 80}}}}\n", name)
			if i == 0 {
				b.WriteString("---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\n" +
					"spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n")
			}
		default:
			fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: shop}\n"+
				"spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: web%s}, "+
				"ports: [{port: 80, targetPort: %d}]}\n", name, more, port)
		}
	}
	return []byte(b.String())
}

var alikeForms = []string{"", "one name", "ports", "selectors", "scaled", "ingresses"}

// TestAlikeIsLinear: ten times the objects take about ten times the processor time, not a hundred times. Both are
// measured in one process, and its own time does not depend on other processes.
func TestAlikeIsLinear(t *testing.T) {
	for _, form := range alikeForms {
		t.Run(form, func(t *testing.T) {
			programtest.Linear(t, 100, func(n int) func() {
				files := []*manifest.File{manifest.Parse("all.yaml", alike(n, form))}
				return func() {
					if r := Examine(files, Options{}); r.Objects < n {
						t.Fatalf("%d objects of %d", r.Objects, n)
					}
				}
			})
		})
	}
}

func BenchmarkAlike(b *testing.B) {
	for _, form := range alikeForms {
		for _, n := range []int{1500, 3000, 6000} {
			b.Run(fmt.Sprintf("%s/%d", form, n), func(b *testing.B) {
				text := alike(n, form)
				for b.Loop() {
					files := []*manifest.File{manifest.Parse("all.yaml", text)}
					Examine(files, Options{})
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/float64(n), "us/object")
			})
		}
	}
}
