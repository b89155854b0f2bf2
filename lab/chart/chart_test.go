package main

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"github.com/lastcall-dev/lastcall/internal/must"
)

const chartFolder = "../../deploy/chart"

// choices are possible installations.
var choices = map[string][]string{
	"defaults":       nil,
	"monitoring":     {"monitoring.podMonitor.enabled=true", "monitoring.rules.enabled=true", "monitoring.dashboard.enabled=true"},
	"observer":       {"observer.enabled=true"},
	"observer alone": {"webhook.enabled=false", "observer.enabled=true", "observer.events=false", "observer.deadlines.enabled=false"},
	"cert-manager":   {"webhook.certManager.enabled=true"},
	"all of it": {"name=other", "webhook.image.digest=sha256:" + strings.Repeat("0a", 32), "image.pullSecrets[0].name=mine", "sidecar.image.tag=1.2.3",
		"sidecar.image.pullPolicy=Always", "sidecar.envoyImage=example/envoy:1", "sidecar.native=false", "sidecar.capture=init", "sidecar.logFormat=json",
		"observer.enabled=true", "observer.appArmorProfile.type=Unconfined", "observer.seLinuxOptions.type=spc_t", "observer.priorityClassName=high", "observer.podLabels.team=a",
		"observer.deadlines.shutdownGracePeriod=20s",
		"meshConfig.defaultConfig.terminationDrainDuration=20s", "webhook.replicas=1", "webhook.namespaces=all", "webhook.excludedNamespaces={a,b}",
		"webhook.failurePolicy=Fail", "webhook.deny=true", "webhook.drainDelay=15s", "webhook.minDrainDuration=1m10s", "webhook.terminationGracePeriodSeconds=90",
		"webhook.certManager.enabled=true", "webhook.certManager.issuerRef.name=ca", "webhook.certManager.issuerRef.kind=ClusterIssuer",
		"webhook.nodeSelector.disk=fast", "webhook.tolerations[0].operator=Exists", "webhook.priorityClassName=high", "webhook.podLabels.team=a",
		"webhook.podAnnotations.who=me",
		"monitoring.podMonitor.enabled=true", "monitoring.podMonitor.labels.release=prometheus", "monitoring.rules.enabled=true", "monitoring.rules.labels.release=prometheus",
		"monitoring.rules.longDrain=1m", "monitoring.rules.window=1h", "monitoring.dashboard.enabled=true", "monitoring.dashboard.namespace=grafana",
		"monitoring.dashboard.annotations.grafana_folder=Platform"},
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartFolder)
	must.Do(t, err)
	c.Metadata.AppVersion = "1.2.3" // as make chart does
	return c
}

// parse reads values, over a registry, without which no chart renders.
func parse(t *testing.T, set []string) map[string]any {
	t.Helper()
	values := map[string]any{"registry": "registry.example.com/team"}
	for _, s := range set {
		must.Do(t, strvals.ParseInto(s, values))
	}
	return values
}

func rendering(t *testing.T, set ...string) rendered {
	t.Helper()
	r, err := render(loadChart(t), parse(t, set), "lastcall", "somewhere")
	must.Do(t, err)
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

// kinds are those of the chart. The types of cert-manager are no part of Kubernetes.
var kinds = []string{
	"ConfigMap", "Service", "ServiceAccount", "DaemonSet", "Deployment", "PodDisruptionBudget", "Role", "RoleBinding", "ClusterRole",
	"ClusterRoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "PodMonitor", "PrometheusRule",
	"Certificate", "Issuer",
}

// The chart passes Helm's lint, and has no field that Kubernetes does not know.
func TestLintAndDecode(t *testing.T) {
	known := runtime.NewScheme()
	must.Do(t, errors.Join(scheme.AddToScheme(known), monitoring.AddToScheme(known)))
	strict := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	seen := map[string]bool{}
	for name, set := range choices {
		t.Run(name, func(t *testing.T) {
			if err := lintChart(chartFolder, parse(t, set), "somewhere"); err != nil {
				t.Error(err)
			}
			r := rendering(t, set...)
			for _, o := range r.objects {
				_, _, err := strict.Decode([]byte(o.text), nil, nil)
				if err != nil && !(runtime.IsNotRegisteredError(err) && o.apiVersion == "cert-manager.io/v1") {
					t.Errorf("%s (%s): %v", o.template, o.name, err)
				}
				seen[o.kind] = true
			}
			if !strings.Contains(r.notes, "kubectl") || strings.Contains(r.notes, "\n\n\n") {
				t.Errorf("the notes say no next command, or are full of holes:\n%s", r.notes)
			}
		})
	}
	if got, want := slices.Sorted(maps.Keys(seen)), slices.Sorted(slices.Values(kinds)); !slices.Equal(got, want) {
		t.Errorf("kinds %v, want %v", got, want)
	}
}

func TestRefused(t *testing.T) {
	for set, says := range map[string]string{
		"webhok.replicas=2":                         "additional properties 'webhok' not allowed",
		"webhook.replica=2":                         "additional properties 'replica' not allowed",
		"webhook.replicas=two":                      "at '/webhook/replicas': got string, want integer",
		"webhook.replicas=0":                        "minimum",
		"webhook.failurePolicy=ignore":              "value must be one of 'Ignore', 'Fail'",
		"webhook.namespaces=some":                   "value must be one of 'labelled', 'all'",
		"webhook.minDrainDuration=5":                "got number, want string",
		"webhook.minDrainDuration=5 s":              "does not match pattern",
		"webhook.minDrainDuration=":                 "does not match pattern",
		"webhook.minDrainDuration=30s":              "webhook.drainDelay (10s) and webhook.minDrainDuration (30s) must be shorter together than webhook.terminationGracePeriodSeconds (30)",
		"webhook.certManager.issuerRef.kind=Issuer": "issuerRef",
		"webhook.image.digest=0a0a":                 "does not match pattern",
		"name=UPPER":                                "does not match pattern",
		"sidecar.capture=node":                      "value must be one of 'sidecar', 'init'",
		"monitoring.rules.longDrain=40s":            "value must be one of",
		"monitoring.rules.window=15":                "got number, want string",
		"monitoring.podMonitor.interval=1m30s":      "does not match pattern",
		"monitoring.dashboard.labels.a=true":        "got boolean, want string",
		"sidecar.native=maybe":                      "got string, want boolean",
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

// Without an image the chart fails and names the missing setting: no default name may lead to a registry that a stranger controls.
func TestImageIsRequired(t *testing.T) {
	const digest = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
	for set, says := range map[string]string{
		"":                                     "no image: set registry to where your nodes pull",
		"webhook.image.repository=a.b/hook":    "or set sidecar.image.repository",
		"sidecar.image.repository=a.b/sidecar": "or set webhook.image.repository",
		"webhook.enabled=false,observer.enabled=true":                               "or set observer.image.repository",
		"registry=a.b/team":                                                         "",
		"webhook.image.repository=a.b/hook,sidecar.image.repository=a.b/agent":      "",
		"webhook.enabled=false,observer.enabled=true,observer.image.repository=a.b": "",
	} {
		values := map[string]any{}
		must.Do(t, strvals.ParseInto(set, values))
		_, err := render(loadChart(t), values, "lastcall", "somewhere")
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: error %v, want %q", set, err, says)
		}
	}
	unpacked := loadChart(t)
	unpacked.Metadata.AppVersion = ""
	if _, err := render(unpacked, parse(t, nil), "lastcall", "somewhere"); err == nil || !strings.Contains(err.Error(), "install dist/lastcall.tgz, or set") {
		t.Errorf("a chart that make chart has not packed: error %v", err)
	}
	for set, want := range map[string][2]string{
		"registry=a.b/team": {"a.b/team/lastcall-controller:1.2.3", "a.b/team/lastcall:1.2.3"},
		"registry=a.b:5000": {"a.b:5000/lastcall-controller:1.2.3", "a.b:5000/lastcall:1.2.3"},
		"webhook.image.tag=v2,sidecar.image.digest=" + digest:      {"registry.example.com/team/lastcall-controller:v2", "registry.example.com/team/lastcall@" + digest},
		"webhook.image.digest=" + digest + ",webhook.image.tag=v2": {"registry.example.com/team/lastcall-controller@" + digest, "registry.example.com/team/lastcall:1.2.3"},
	} {
		c := deployments(t, rendering(t, set))[0].Spec.Template.Spec.Containers[0]
		if c.Image != want[0] || !slices.Contains(c.Args, "--image="+want[1]) {
			t.Errorf("%s: image %s, args %q; want %q", set, c.Image, c.Args, want)
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

func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must.Do(t, err)
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

// selected are the labels with the keys of asked.
func selected(labels, selector map[string]string) map[string]string {
	out := map[string]string{}
	for k := range selector {
		if v, ok := labels[k]; ok {
			out[k] = v
		}
	}
	return out
}

// The observer is not restricted, because it sees the nodes' processes; this is all that it has.
func TestNodePrograms(t *testing.T) {
	events, pods := "cluster events: create,patch", "cluster pods: list,watch"
	for set, want := range map[string]struct {
		capture, level string
		rights         []string
	}{
		"":                      {"sidecar", "restricted", nil},
		"sidecar.capture=init":  {"init", "restricted", nil},
		"observer.enabled=true": {"sidecar", "privileged", []string{events, pods}},
		"observer.enabled=true,observer.events=false": {"sidecar", "privileged", []string{pods}},
	} {
		r := rendering(t, set)
		if args := deployments(t, r)[0].Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--capture="+want.capture) {
			t.Errorf("%s: the webhook has %q", set, args)
		}
		files, err := base(loadChart(t), parse(t, []string{set}))
		must.Do(t, err)
		if !strings.Contains(string(files["namespace.yaml"]), "enforce: "+want.level) {
			t.Errorf("%s: %s", set, files["namespace.yaml"])
		}
		if got := rights(t, r, "lastcall-observer"); !slices.Equal(got, want.rights) {
			t.Errorf("%s: rights %q", set, got)
		}
		for _, o := range r.objects {
			if o.kind != "DaemonSet" {
				continue
			}
			d := decode[appsv1.DaemonSet](t, o)
			spec := d.Spec.Template.Spec
			c := spec.Containers[0]
			s := c.SecurityContext
			if s.Privileged != nil || !spec.HostPID || spec.HostNetwork || spec.HostIPC ||
				*s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(s.Capabilities.Add, []corev1.Capability{"SYS_ADMIN", "SYS_PTRACE"}) {
				t.Errorf("%s: %+v", set, s)
			}
			if len(c.Ports) != 1 || c.Ports[0].Name != "metrics" {
				t.Errorf("%s: ports %+v", set, c.Ports)
			}
			if len(spec.Volumes) > 0 {
				t.Errorf("%s: volumes %+v", set, spec.Volumes)
			}
			if !maps.Equal(d.Spec.Selector.MatchLabels, selected(d.Spec.Template.Labels, d.Spec.Selector.MatchLabels)) {
				t.Errorf("it does not select its own pods: %v", d.Spec.Template.Labels)
			}
		}
	}
}
