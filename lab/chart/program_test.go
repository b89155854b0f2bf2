package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// controller is the program of the chart's only Deployment.
const controller = "lastcall-controller"

// programs builds them once, for the tests that compare the chart with them, and returns their folder.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "lastcall-chart-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", folder, "./kube/cmd/lastcall-controller")
	build.Dir = "../.."
	build.Stderr = os.Stderr
	return folder, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if folder, err := programs(); err == nil {
		_ = os.RemoveAll(folder)
	}
	os.Exit(code)
}

func program(t *testing.T, name string) string {
	t.Helper()
	folder, err := programs()
	if err != nil {
		t.Fatalf("build the programs: %v", err)
	}
	return filepath.Join(folder, name)
}

func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(program(t, name), args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return out
}

// calledFor are the paths that the API server calls for a pod, separated by a space.
func calledFor(t *testing.T, r rendered, namespace, ofNamespace, ofPod string) string {
	t.Helper()
	set := func(value string) labels.Set {
		if value == "" {
			return labels.Set{}
		}
		return labels.Set{"lastcall.dev/inject": value}
	}
	in := set(ofNamespace)
	in["kubernetes.io/metadata.name"] = namespace
	var paths []string
	for _, o := range r.objects {
		if o.kind != "MutatingWebhookConfiguration" {
			continue
		}
		for _, w := range decode[admissionregistration.MutatingWebhookConfiguration](t, o).Webhooks {
			matches := true
			for selector, on := range map[*metav1.LabelSelector]labels.Set{w.NamespaceSelector: in, w.ObjectSelector: set(ofPod)} {
				s, err := metav1.LabelSelectorAsSelector(selector)
				must.Do(t, err)
				matches = matches && s.Matches(on)
			}
			if matches {
				paths = append(paths, *w.ClientConfig.Service.Path)
			}
		}
	}
	return strings.Join(paths, " ")
}

func TestWhichPodsAreReviewed(t *testing.T) {
	labelled, all := rendering(t), rendering(t, "webhook.namespaces=all", "webhook.excludedNamespaces={quiet}")
	const byNamespace, byPod = "/inject/namespace", "/inject/pod"
	for _, c := range []struct {
		name, namespace, ofNamespace, ofPod string
		labelled, all                       string
	}{
		{"no label", "shop", "", "", "", byNamespace},
		{"the namespace requests it", "shop", "true", "", byNamespace, byNamespace},
		{"in Istio's word, which is not accepted", "shop", "enabled", "", "", byNamespace},
		{"the pod requests it", "shop", "", "true", byPod, byNamespace},
		{"both request it", "shop", "true", "true", byNamespace, byNamespace},
		{"the pod objects", "shop", "true", "false", "", ""},
		{"the namespace objects", "shop", "false", "", "", ""},
		{"the namespace objects, the pod requests it", "shop", "false", "true", byPod, byPod},
		{"the cluster's own", "kube-system", "true", "true", "", ""},
		{"the webhook's own", "somewhere", "true", "true", "", ""},
		{"one that is excluded", "quiet", "true", "true", byNamespace, ""},
	} {
		if got := calledFor(t, labelled, c.namespace, c.ofNamespace, c.ofPod); got != c.labelled {
			t.Errorf("%s: labelled namespaces: called %q, want %q", c.name, got, c.labelled)
		}
		if got := calledFor(t, all, c.namespace, c.ofNamespace, c.ofPod); got != c.all {
			t.Errorf("%s: all namespaces: called %q, want %q", c.name, got, c.all)
		}
	}
}

// Each flag that a container gets, its command has, and every port that a probe asks, it opens.
func TestProgramKnowsItsFlags(t *testing.T) {
	for name, set := range choices {
		for _, d := range deployments(t, rendering(t, set...)) {
			c := d.Spec.Template.Spec.Containers[0]
			help := strings.Fields(string(output(t, controller, "--help")))
			for _, arg := range c.Args {
				flag, _, _ := strings.Cut(arg, "=")
				if !slices.Contains(help, flag) {
					t.Errorf("%s: %s has no flag %s", name, controller, flag)
				}
			}
		}
	}
}
