package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// TestGitOps holds docs/gitops.md to docs/install.md and the chart: all tools install the same chart into the same
// namespace, it renders the same each time, and the fields that Argo CD ignores are those that it does not render.
func TestGitOps(t *testing.T) {
	text, err := os.ReadFile("../../docs/gitops.md")
	must.Do(t, err)
	page := string(text)
	install, err := os.ReadFile("../../docs/install.md")
	must.Do(t, err)
	from := regexp.MustCompile(`helm install lastcall oci://(\S+)/lastcall --version (\S+)\.\d+ --namespace (\S+)`).FindStringSubmatch(string(install))
	if from == nil {
		t.Fatal("docs/install.md does not install the chart")
	}
	var ignored []string
	for _, m := range regexp.MustCompile("(?s)```(yaml|hcl)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, want := range from[1:] {
			if !strings.Contains(m[2], want) {
				t.Errorf("no %s in\n%s", want, m[2])
			}
		}
		if m[1] == "hcl" {
			continue
		}
		for _, one := range strings.Split(m[2], "\n---\n") {
			var o struct {
				Kind string
				Spec struct{ IgnoreDifferences []struct{ Kind string } }
			}
			if err := yaml.Unmarshal([]byte(one), &o); err != nil || o.Kind == "" {
				t.Errorf("%v:\n%s", err, one)
			}
			for _, d := range o.Spec.IgnoreDifferences {
				ignored = append(ignored, d.Kind)
			}
		}
	}
	r, again := rendering(t), rendering(t)
	var changed []string
	for i, o := range r.objects {
		if o.text != again.objects[i].text || strings.Contains(o.text, "caBundle:") {
			t.Errorf("%s: rendered differently, or with a caBundle:\n%s", o.template, o.text)
		}
		if strings.Contains(o.text, "clientConfig:") {
			changed = append(changed, o.kind)
		}
	}
	for _, f := range loadChart(t).Templates {
		if strings.Contains(string(f.Data), "helm.sh/hook") {
			t.Errorf("%s is a hook", f.Name)
		}
	}
	slices.Sort(changed)
	if slices.Sort(ignored); !slices.Equal(ignored, changed) {
		t.Errorf("Argo CD ignores the caBundle of %q, the chart has %q", ignored, changed)
	}
}
