package lint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/lint"
	"github.com/lastcall-dev/lastcall/kube/manifest"
)

// deployment is a Deployment of two pods; more are fields of its spec, and image is its container's.
func deployment(name, more, image string) string {
	return "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: " + name + "}\nspec:\n  replicas: 2\n" + more +
		"  selector: {matchLabels: {app: " + name + "}}\n  template:\n    metadata: {labels: {app: " + name + "}}\n    spec: {containers: [{name: a, image: " + image + "}]}\n"
}

func serviceOf(name, port string) string {
	return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {selector: {app: " + name + "}, ports: [{port: 80, name: " + port + "}]}\n"
}

// waits is a Deployment whose hook sleeps.
func waits(name string, seconds int) string {
	return deployment(name, "", fmt.Sprintf("web, lifecycle: {preStop: {sleep: {seconds: %d}}}", seconds))
}

func albOf(service string) string {
	return "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web, annotations: {alb.ingress.kubernetes.io/target-type: ip}}\n" +
		"spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: " + service + ", port: {number: 80}}}}]}}]}\n"
}

func nlbOf(name string) string {
	return strings.NewReplacer("metadata: {", "metadata: {annotations: {service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: ip}, ", "spec: {", "spec: {type: LoadBalancer, ").Replace(serviceOf(name, "http"))
}

// localOf is a Service whose load balancer sends connections to the nodes that have its pods.
func localOf(name string) string {
	return strings.Replace(serviceOf(name, "http"), "spec: {", "spec: {externalTrafficPolicy: Local, ", 1)
}

const exitOnZero = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  annotations:\n    %s: \"%s\"\n    proxy.istio.io/config: |\n      proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: \"true\"}\nspec: {containers: [{name: a, image: a}]}\n"

func exitsOnZero(annotation, value string) string {
	return strings.Replace(strings.Replace(exitOnZero, "%s", annotation, 1), "%s", value, 1)
}

// TestServed examines folders of manifests: which findings each has. The cases without one were alarms about the manifests
// of public projects (testdata/judged.tsv).
func TestServed(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		istio inject.Sidecar
		want  string // IDs
	}{
		{"a web app", []string{deployment("web", "", "web") + serviceOf("web", "http")}, "", "LC019"},
		{"its Service in another file", []string{deployment("web", "", "web"), serviceOf("web", "http")}, "", "LC019"},
		{"a control plane's xDS", []string{deployment("web", "", "web") + serviceOf("web", "grpc-xds")}, "", ""},
		{"DNS", []string{deployment("web", "", "web") + serviceOf("web", "dns-tcp")}, "", ""},
		{"all replaced at once", []string{deployment("web", "  strategy: {type: Recreate}\n", "web") + serviceOf("web", "http")}, "", ""},
		{"an image that waits", []string{deployment("web", "", "ghcr.io/stefanprodan/podinfo:6.7.0") + serviceOf("web", "http")}, "", ""},
		{"behind an ALB with the pods' addresses", []string{deployment("web", "", "podinfo:6.7.0") + serviceOf("web", "http"), albOf("web")}, "", "LC019 LC016"},
		{"an ALB with its nodes", []string{waits("web", 5) + serviceOf("web", "http"), strings.Replace(albOf("web"), ": ip", ": instance", 1)}, "", ""},
		{"an ALB, and pods that wait too briefly", []string{waits("web", 10) + serviceOf("web", "http") + albOf("web")}, "", "LC016"},
		{"an ALB, and pods that wait", []string{waits("web", 15) + serviceOf("web", "http") + albOf("web")}, "", ""},
		{"an ALB of another Service", []string{waits("web", 5) + serviceOf("web", "http") + albOf("api")}, "", ""},
		{"an NLB with the pods' addresses", []string{waits("web", 20) + nlbOf("web")}, "", "LC016"},
		{"an NLB, and an app with a delay of its own", []string{deployment("web", "", "web, args: [--shutdown-delay=200s]") + nlbOf("web")}, "", "LC038"},
		{"Local, gone at once", []string{deployment("web", "", "web") + localOf("web")}, "", "LC019 LC016"},
		{"Local, another's pods", []string{deployment("web", "", "web") + localOf("other")}, "", ""},
		{"Local, stays by its preStop", []string{waits("web", 15) + localOf("web")}, "", ""},
		{"Local, too short", []string{waits("web", 5) + localOf("web")}, "", "LC016"},
		{"Local, a hook of unknown length", []string{deployment("web", "", "web, lifecycle: {preStop: {exec: {command: [/drain]}}}") + localOf("web")}, "", ""},
		{"Local, stays by its minimum drain", []string{strings.Replace(deployment("web", "", "web"), "metadata: {labels: {app: web}}",
			`metadata: {labels: {app: web}, annotations: {proxy.istio.io/config: "proxyMetadata: {MINIMUM_DRAIN_DURATION: 10s}"}}`, 1) + localOf("web")}, "", ""},
		{"not a manifest", []string{deployment("web", "", "web"), "title: a: b\n"}, "", ""},
		{"a template of Make", []string{deployment("@NAME@", "", "web")}, "", ""},
		{"a broken manifest", []string{"kind: Pod\nmetadata: {"}, "", "LC000"},
		{"exit on zero in a native sidecar", []string{exitsOnZero("a", "b")}, "", "LC005"},
		{"next to a misspelt annotation", []string{exitsOnZero("lastcall.dev/quite-time", "1s")}, "", "LC007 LC005"},
		{"in a classic one", []string{exitsOnZero("sidecar.istio.io/nativeSidecar", "false")}, "", ""},
		{"in a mesh of classic ones", []string{exitsOnZero("a", "b")}, inject.Classic, ""},
		{"with lastcall, which reads it", []string{exitsOnZero("lastcall.dev/inject", "true")}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			for i, text := range c.files {
				if err := os.WriteFile(filepath.Join(folder, string(rune('a'+i))+".yaml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			files, err := manifest.Read([]string{folder}, nil)
			if err != nil {
				t.Fatal(err)
			}
			result := lint.Examine(files, lint.Options{Istio: c.istio})
			var got []string
			for _, f := range result.Findings {
				got = append(got, f.ID)
			}
			if strings.Join(slices.Compact(got), " ") != c.want {
				t.Errorf("%v, want %q", result.Findings, c.want)
			}
		})
	}
}
