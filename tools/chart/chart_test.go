package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
)

const chartFolder = "../../deploy/chart"

// choices are installations that somebody may want.
var choices = map[string][]string{
	"defaults":     nil,
	"gateway":      {"gateway.enabled=true", "gateway.loadBalancer=nlb", "gateway.exitAtConnections=3", "gateway.healthCheckFailureDelay=10s"},
	"gateway only": {"webhook.enabled=false", "gateway.enabled=true", "gateway.service.type=ClusterIP", "gateway.ingressClass.create=false"},
	"cert-manager": {"webhook.certManager.enabled=true"},
	"all of it": {"name=other", "image.digest=sha256:" + strings.Repeat("0a", 32), "image.pullSecrets[0].name=mine", "sidecar.image.tag=1.2.3",
		"sidecar.image.pullPolicy=Always", "sidecar.envoyImage=example/envoy:1", "sidecar.native=false", "sidecar.logFormat=json",
		"meshConfig.defaultConfig.terminationDrainDuration=20s", "webhook.replicas=1", "webhook.namespaces=all", "webhook.excludedNamespaces={a,b}",
		"webhook.failurePolicy=Fail", "webhook.deny=true", "webhook.minDrainDuration=1m10s", "webhook.terminationGracePeriodSeconds=90",
		"webhook.certManager.enabled=true", "webhook.certManager.issuerRef.name=ca", "webhook.certManager.issuerRef.kind=ClusterIssuer",
		"webhook.nodeSelector.disk=fast", "webhook.tolerations[0].operator=Exists", "webhook.priorityClassName=high", "webhook.podLabels.team=a",
		"webhook.podAnnotations.who=me", "gateway.enabled=true", "gateway.ingressClass.default=true", "gateway.service.annotations.x=y",
		"gateway.minDrainDuration=30s", "gateway.drainTimeout=1h1m1s"},
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, set []string) map[string]any {
	t.Helper()
	values := map[string]any{}
	for _, s := range set {
		if err := strvals.ParseInto(s, values); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

func rendering(t *testing.T, set ...string) rendered {
	t.Helper()
	r, err := render(loadChart(t), parse(t, set), "lastcall", "somewhere")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// decode reads an object strictly into its type: a field that Kubernetes does not know is an error.
func decode[T any](t *testing.T, o object) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(o.text), out); err != nil {
		t.Errorf("%s (%s): %v", o.template, o.name, err)
	}
	return out
}

var kinds = map[string]func(*testing.T, object){
	"v1 ConfigMap":                      func(t *testing.T, o object) { decode[corev1.ConfigMap](t, o) },
	"v1 Service":                        func(t *testing.T, o object) { decode[corev1.Service](t, o) },
	"v1 ServiceAccount":                 func(t *testing.T, o object) { decode[corev1.ServiceAccount](t, o) },
	"apps/v1 Deployment":                func(t *testing.T, o object) { decode[appsv1.Deployment](t, o) },
	"policy/v1 PodDisruptionBudget":     func(t *testing.T, o object) { decode[policyv1.PodDisruptionBudget](t, o) },
	"rbac.authorization.k8s.io/v1 Role": func(t *testing.T, o object) { decode[rbacv1.Role](t, o) },
	"networking.k8s.io/v1 IngressClass": func(t *testing.T, o object) { decode[networkingv1.IngressClass](t, o) },
	"rbac.authorization.k8s.io/v1 RoleBinding": func(t *testing.T, o object) {
		decode[rbacv1.RoleBinding](t, o)
	},
	"rbac.authorization.k8s.io/v1 ClusterRole": func(t *testing.T, o object) {
		decode[rbacv1.ClusterRole](t, o)
	},
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func(t *testing.T, o object) {
		decode[rbacv1.ClusterRoleBinding](t, o)
	},
	"admissionregistration.k8s.io/v1 MutatingWebhookConfiguration": func(t *testing.T, o object) {
		decode[admissionregistration.MutatingWebhookConfiguration](t, o)
	},
	"admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration": func(t *testing.T, o object) {
		decode[admissionregistration.ValidatingWebhookConfiguration](t, o)
	},
	"cert-manager.io/v1 Certificate": nil, // its types are no part of Kubernetes
	"cert-manager.io/v1 Issuer":      nil,
}

func TestLintAndDecode(t *testing.T) {
	seen := map[string]bool{}
	for name, set := range choices {
		t.Run(name, func(t *testing.T) {
			if err := lintChart(chartFolder, parse(t, set), "somewhere"); err != nil {
				t.Error(err)
			}
			r := rendering(t, set...)
			for _, o := range r.objects {
				kind := o.apiVersion + " " + o.kind
				check, known := kinds[kind]
				if !known {
					t.Errorf("%s: this test knows no %s", o.template, kind)
				}
				if check != nil {
					check(t, o)
				}
				seen[kind] = true
			}
			if !strings.Contains(r.notes, "kubectl") || strings.Contains(r.notes, "\n\n\n") {
				t.Errorf("the notes say no next command, or are full of holes:\n%s", r.notes)
			}
		})
	}
	for kind := range kinds {
		if !seen[kind] {
			t.Errorf("nobody gets a %s", kind)
		}
	}
}

func TestRefused(t *testing.T) {
	for set, says := range map[string]string{
		"webhok.replicas=2":                            "additional properties 'webhok' not allowed",
		"webhook.replica=2":                            "additional properties 'replica' not allowed",
		"webhook.replicas=two":                         "at '/webhook/replicas': got string, want integer",
		"webhook.replicas=0":                           "minimum",
		"webhook.failurePolicy=ignore":                 "value must be one of 'Ignore', 'Fail'",
		"webhook.namespaces=some":                      "value must be one of 'labelled', 'all'",
		"webhook.minDrainDuration=5":                   "got number, want string",
		"webhook.minDrainDuration=5 s":                 "does not match pattern",
		"webhook.minDrainDuration=":                    "does not match pattern",
		"webhook.minDrainDuration=30s":                 "webhook.minDrainDuration (30s) must be shorter than webhook.terminationGracePeriodSeconds (30)",
		"webhook.certManager.issuerRef.kind=Issuer":    "issuerRef",
		"gateway.loadBalancer=elb":                     "value must be one of 'nlb'",
		"gateway.service.ports.http=0":                 "minimum",
		"image.digest=0a0a":                            "does not match pattern",
		"image.tag=a b":                                "does not match pattern",
		"name=UPPER":                                   "does not match pattern",
		"sidecar.native=maybe":                         "got string, want boolean",
		"gateway.enabled=true,gateway.drainTimeout=1m": "", // enough for the default
		"gateway.enabled=true,gateway.drainTimeout=4s": "gateway.drainTimeout (4s) must not be shorter than the 5s that gateway.loadBalancer adaptive needs",
		"gateway.enabled=true,gateway.drainTimeout=1m,gateway.minDrainDuration=1m1s": "gateway.drainTimeout (1m) must not be shorter than gateway.minDrainDuration (1m1s)",
		"gateway.enabled=true,gateway.drainTimeout=3m,gateway.loadBalancer=nlb":      "must not be shorter than the 190s that gateway.loadBalancer nlb needs",
	} {
		_, err := render(loadChart(t), parse(t, []string{set}), "lastcall", "somewhere")
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", set, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error %v, want one with %q", set, err, says)
		}
	}
}

// lastcallctl builds the program once, for the tests that compare with it.
var lastcallctl = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "lastcallctl-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(folder, "lastcallctl")
	build := exec.Command("go", "build", "-o", program, "./cmd/lastcallctl")
	build.Dir = "../.."
	build.Stderr = os.Stderr
	return program, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := lastcallctl(); err == nil {
		_ = os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

func ctl(t *testing.T, args ...string) []byte {
	t.Helper()
	program, err := lastcallctl()
	if err != nil {
		t.Fatalf("build lastcallctl: %v", err)
	}
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		t.Fatalf("lastcallctl %q: %v", args, err)
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
		printed := bytes.Split(ctl(t, append([]string{"webhook", "manifests", "--namespace=somewhere"}, flags...)...), []byte("---\n"))
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
				t.Errorf("%s: the chart has\n%s\nlastcallctl webhook manifests prints\n%s", set, got, want)
			}
		}
		if found != 2 {
			t.Errorf("%s: %d configurations, want 2", set, found)
		}
	}
}

func deployments(t *testing.T, r rendered) (out []*appsv1.Deployment) {
	t.Helper()
	for _, o := range r.objects {
		if o.kind == "Deployment" {
			out = append(out, decode[appsv1.Deployment](t, o))
		}
	}
	return out
}

// Each flag that a container gets, its command has, and every port that a probe asks, it opens.
func TestProgramKnowsItsFlags(t *testing.T) {
	for name, set := range choices {
		for _, d := range deployments(t, rendering(t, set...)) {
			c := d.Spec.Template.Spec.Containers[0]
			help := string(ctl(t, c.Args[0], "--help"))
			if c.Args[0] == "gateway" && !strings.Contains(help, "--kubernetes") {
				t.Log("lastcallctl gateway has no --kubernetes yet")
				continue
			}
			for _, arg := range c.Args[1:] {
				flag, _, _ := strings.Cut(arg, "=")
				if !slices.Contains(strings.Fields(help), flag) {
					t.Errorf("%s: lastcallctl %s has no flag %s", name, c.Args[0], flag)
				}
			}
		}
	}
}

func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, set := range choices {
		for _, d := range deployments(t, rendering(t, set...)) {
			pod := d.Spec.Template
			results := evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)
			for _, r := range results {
				if !r.Allowed {
					t.Errorf("%s: %s is not restricted: %s %s", name, d.Name, r.ForbiddenReason, r.ForbiddenDetail)
				}
			}
			for _, c := range pod.Spec.Containers {
				if s := c.SecurityContext; s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
					t.Errorf("%s: %s can write to its root", name, d.Name)
				}
			}
			if !maps.Equal(d.Spec.Selector.MatchLabels, selected(pod.Labels, d.Spec.Selector.MatchLabels)) {
				t.Errorf("%s: %s does not select its own pods: %v", name, d.Name, pod.Labels)
			}
		}
	}
}

// selected are those of labels that are asked for.
func selected(labels, asked map[string]string) map[string]string {
	out := map[string]string{}
	for k := range asked {
		if v, ok := labels[k]; ok {
			out[k] = v
		}
	}
	return out
}
