package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// Each load balancer's minimum is the program's: what the chart takes just so, the program takes, and a second less
// neither of them.
func TestMinimumIsTheProgram(t *testing.T) {
	gateway := program(t, "lastcall-gateway")
	for balancer, minimum := range map[string]int{"nlb": 190, "alb": 310, "gke": 6, "cloudflare": 60, "adaptive": 5} {
		set := fmt.Sprintf("gateway.enabled=true,webhook.enabled=false,gateway.loadBalancer=%s,gateway.drainTimeout=%ds", balancer, minimum)
		args := deployments(t, rendering(t, set))[0].Spec.Template.Spec.Containers[0].Args
		for less := range 2 {
			at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--drain-timeout=") })
			args[at] = fmt.Sprintf("--drain-timeout=%ds", minimum-less)
			// It gets no further than to the file that is not there.
			out, err := exec.Command(gateway, append(args, "--kubeconfig=/nowhere")...).CombinedOutput()
			if refused := strings.Contains(string(out), "--minimum-drain"); err == nil || refused != (less == 1) {
				t.Errorf("%s with %s: error %v, %s", balancer, args[at], err, out)
			}
		}
		less := strings.Replace(set, fmt.Sprintf("%ds", minimum), fmt.Sprintf("%ds", minimum-1), 1)
		if _, err := render(loadChart(t), parse(t, []string{less}), "lastcall", "somewhere"); err == nil {
			t.Errorf("the chart takes %s", less)
		}
	}
}

// programOf is the program that a container runs.
var programOf = map[string]string{"webhook": "lastcall-controller", "gateway": "lastcall-gateway"}

// programs builds them once, for the tests that compare the chart with them, and returns their folder.
var programs = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "lastcall-chart-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", folder, "./kube/cmd/lastcall-controller", "./gateway/cmd/lastcall-gateway")
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
		printed := bytes.Split(output(t, "lastcall-controller", append([]string{"manifests", "--namespace=somewhere"}, flags...)...), []byte("---\n"))
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
			command := programOf[c.Name]
			help := strings.Fields(string(output(t, command, "--help")))
			for _, arg := range c.Args {
				flag, _, _ := strings.Cut(arg, "=")
				if !slices.Contains(help, flag) {
					t.Errorf("%s: %s has no flag %s", name, command, flag)
				}
			}
		}
	}
}
