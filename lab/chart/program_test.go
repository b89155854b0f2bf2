package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
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

// The program knows the reasons for each of its webhooks' fields, so that the chart must not differ.
func TestWebhooksAreThosePrinted(t *testing.T) {
	for set, flags := range map[string][]string{
		"":                                 {},
		"name=other":                       {"--name=other-webhook", "--service=other-webhook"},
		"webhook.failurePolicy=Fail":       {"--fail-closed"},
		"webhook.namespaces=all":           {"--all-namespaces"},
		"webhook.excludedNamespaces={a,b}": {"--exclude-namespace=a,b"},
	} {
		printed := bytes.Split(output(t, controller, append([]string{"manifests", "--namespace=somewhere"}, flags...)...), []byte("---\n"))
		if len(printed) != 3 {
			t.Fatalf("printed are %d documents", len(printed))
		}
		found := 0
		for _, o := range rendering(t, set).objects {
			var want []byte
			switch o.kind {
			case "MutatingWebhookConfiguration":
				want = printed[1]
			case "ValidatingWebhookConfiguration":
				want = printed[2]
			default:
				continue
			}
			found++
			type configuration struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
				Webhooks         []any
			}
			var a, b configuration
			if err := yaml.Unmarshal([]byte(o.text), &a); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal(want, &b); err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			if want, err = yaml.Marshal(b); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: the chart has\n%s\nlastcall-controller manifests prints\n%s", set, got, want)
			}
		}
		if found != 2 {
			t.Errorf("%s: %d configurations, want 2", set, found)
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
