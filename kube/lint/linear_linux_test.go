package lint

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// alike has n objects with one label in one namespace: Deployments with Services, and what scales them. They are JSON,
// which takes a fraction of YAML's time to read.
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
			more = fmt.Sprintf(`,"part":"p%d"`, i)
		}
		metadata := fmt.Sprintf(`"metadata":{"name":%q,"namespace":"shop"`, name)
		fmt.Fprintf(&b, `{"apiVersion":"apps/v1","kind":"Deployment",%s},"spec":{"replicas":2,"template":{`+
			`"metadata":{"labels":{"app":"web"%s}},"spec":{"containers":[{"name":"web","image":"web",`+
			`"ports":[{"containerPort":%d}],"lifecycle":{"preStop":{"sleep":{"seconds":5}}}}]}}}}`+"\n", metadata, more, port)
		switch form {
		case "scaled":
			fmt.Fprintf(&b, `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler",%s},`+
				`"spec":{"maxReplicas":5,"scaleTargetRef":{"kind":"Deployment","name":"web-1"}}}`+"\n", metadata)
		case "ingresses":
			fmt.Fprintf(&b, `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress",%s,`+
				`"annotations":{"alb.ingress.kubernetes.io/target-type":"ip"}},"spec":{"ingressClassName":"alb",`+
				`"defaultBackend":{"service":{"name":"web","port":{"number":80}}}}}`+"\n", metadata)
			if i == 0 {
				b.WriteString(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},` +
					`"spec":{"selector":{"app":"web"},"ports":[{"port":80,"targetPort":8080}]}}` + "\n")
			}
		default:
			fmt.Fprintf(&b, `{"apiVersion":"v1","kind":"Service",%s},"spec":{"type":"LoadBalancer",`+
				`"externalTrafficPolicy":"Local","selector":{"app":"web"%s},"ports":[{"port":80,"targetPort":%d}]}}`+"\n",
				metadata, more, port)
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
				files := []*manifest.File{manifest.Parse("all.json", alike(n, form))}
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
					files := []*manifest.File{manifest.Parse("all.json", text)}
					Examine(files, Options{})
				}
				b.ReportMetric(b.Elapsed().Seconds()*1e6/float64(b.N)/float64(n), "us/object")
			})
		}
	}
}
