package inject

import (
	"maps"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/lastcall-dev/lastcall/internal/sidecar/meshconfig"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// TestMeshes: next to any other proxy the app's hook watches sockets, and nothing is captured.
func TestMeshes(t *testing.T) {
	label := func(name, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels[name] = value }
	}
	annotation := func(name, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations[name] = value }
	}
	container := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, Image: name, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)})
		}
	}
	ambient := Namespace{Labels: map[string]string{"istio.io/dataplane-mode": "ambient"}}
	linkerd := Namespace{Annotations: map[string]string{"linkerd.io/inject": "enabled"}}
	for _, c := range []struct {
		name   string
		ns     Namespace
		change func(*corev1.Pod)
		note   string // empty: the pod gets the pipe
	}{
		{"ambient by its namespace", ambient, nil, "ztunnel"},
		{"ambient by itself", Namespace{}, label("istio.io/dataplane-mode", "ambient"), "ztunnel"},
		{"ambient, as its CNI reports", Namespace{}, annotation("ambient.istio.io/redirection", "enabled"), "ztunnel"},
		{"not ambient", ambient, label("istio.io/dataplane-mode", "none"), ""},
		{"linkerd by its namespace", linkerd, nil, "linkerd"},
		{"linkerd as ingress", Namespace{}, annotation("linkerd.io/inject", "ingress"), "linkerd"},
		{"not linkerd", linkerd, annotation("linkerd.io/inject", "disabled"), ""},
		{"linkerd's proxy", Namespace{}, container("linkerd-proxy"), "linkerd"},
		{"Kuma by its namespace", Namespace{Labels: map[string]string{"kuma.io/sidecar-injection": "enabled"}}, nil, "Kuma"},
		{"Kuma's proxy", Namespace{}, container("kuma-sidecar"), "Kuma"},
		{"Consul", Namespace{}, annotation("consul.hashicorp.com/connect-inject", "true"), "Consul"},
		{"Consul's proxy of one of several services", Namespace{}, container("consul-dataplane-web"), "Consul"},
		{"Consul by its injector's mark", Namespace{}, annotation("consul.hashicorp.com/connect-inject-status", "injected"), "Consul"},
		{"Dapr", Namespace{}, annotation("dapr.io/enabled", "true"), "Dapr"},
		{"Dapr off", Namespace{}, annotation("dapr.io/enabled", "false"), ""},
		{"an own Envoy", Namespace{}, container("envoy"), ""},
		{"App Mesh's", Namespace{}, func(p *corev1.Pod) {
			container("envoy")(p)
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "proxyinit"})
		}, "App Mesh"},
	} {
		for _, chosen := range []string{"", "pipe", "istio"} {
			o := testOptions()
			o.Namespace = c.ns
			p := aPod(c.change)
			if chosen != "" {
				p.Annotations[annotationProxy] = chosen
			}
			got, r := Pod(p, o)
			notes := strings.Join(r.Notes, "\n")
			switch isCaptured := pod.Find(&got.Spec, pod.Sidecar) != nil; {
			case c.note == "" && chosen != "istio":
				if !isCaptured {
					t.Errorf("%s, %q: %+v", c.name, chosen, r)
				}
			case c.note == "":
			case c.note == "Dapr" && chosen == "istio":
				if r.Proxy != Istio {
					t.Errorf("%s, %q: %+v", c.name, chosen, r)
				}
			case isCaptured || r.Proxy != Sockets || !strings.Contains(notes, c.note) || chosen != "" && !strings.Contains(notes, "although "+annotationProxy):
				t.Errorf("%s, %q: captured %v, %+v", c.name, chosen, isCaptured, r)
			case strings.Replace(command(t, got, "web"), "--linkerd 4191 ", "", strings.Count(c.note, "linkerd")) != "wait --ports 8080/http --report /dev/termination-log":
				t.Errorf("%s, %q: the hook is %q", c.name, chosen, command(t, got, "web"))
			}
		}
	}
}

// TestRedirected: a redirect of an unknown product is left alone, with the reason.
func TestRedirected(t *testing.T) {
	admin := &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
	for _, c := range []struct {
		init   corev1.Container
		reason string
	}{
		{corev1.Container{Name: "istio-init"}, "redirects its traffic"},
		{corev1.Container{Name: "acme-iptables"}, "redirects its traffic"},
		{corev1.Container{Name: "net", Command: []string{"sh", "-c", "iptables -t nat -A PREROUTING -p tcp -j REDIRECT"}, SecurityContext: admin}, "seems to redirect"},
		{corev1.Container{Name: "net", Args: []string{"--port=15006"}, SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}, "seems to redirect"},
		{corev1.Container{Name: "sysctl", Command: []string{"sysctl", "-w", "net.core.somaxconn=1024"}, SecurityContext: admin}, ""},
		{corev1.Container{Name: "wait", Command: []string{"sh", "-c", "iptables -L"}}, ""},
	} {
		p := aPod(func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{c.init} })
		got, r := Pod(p, testOptions())
		if left := r.Outcome == LeftAlone; left != (c.reason != "") || !strings.Contains(r.Reason, c.reason) || left && !reflect.DeepEqual(got.Spec, p.Spec) {
			t.Errorf("%+v: %+v, want %q", c.init, r, c.reason)
		}
		p.Annotations[annotationProxy] = "sockets"
		if _, r := Pod(p, testOptions()); r.Proxy != Sockets {
			t.Errorf("%+v: %+v", c.init, r)
		}
	}
}

// TestWithdraw: another injector adds its proxy after lastcall's own, which lastcall could not know; its second call takes
// the sidecar out again.
func TestWithdraw(t *testing.T) {
	probed := func(p *corev1.Pod) {
		p.Annotations["prometheus.io/scrape"], p.Annotations["prometheus.io/port"] = "true", "9090"
		c := &p.Spec.Containers[0]
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http")}}, PeriodSeconds: 3}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}}
		c.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/warm", Port: intstr.FromInt32(8080)}}}
	}
	add := func(names ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, name := range names {
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, Image: name, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)})
			}
		}
	}
	for _, form := range []Sidecar{Native, Classic} {
		o := testOptions()
		o.Sidecar = form
		for _, c := range []struct {
			name    string
			other   func(*corev1.Pod)
			outcome Outcome
		}{
			{"linkerd", add("linkerd-init", "linkerd-proxy"), Injected},
			{"a product without a name", add("acme-iptables", "acme-proxy"), LeftAlone},
			{"Istio", func(p *corev1.Pod) { *p = *withIstio(p, native) }, Injected},
		} {
			before := aPod(probed)
			first, r := Pod(before, o)
			if r.Proxy != Pipe {
				t.Fatalf("%+v", r)
			}
			c.other(first)
			second, r := Pod(first, o)
			if r.Outcome != c.outcome {
				t.Errorf("%s after a %s sidecar: %+v", c.name, form, r)
			}
			for _, name := range []string{pod.Sidecar, containerCapture} {
				if pod.Find(&second.Spec, name) != nil {
					t.Errorf("%s: there are two redirects: container %s is there", c.name, name)
				}
			}
			app := pod.Find(&second.Spec, "web")
			if c.name == "Istio" {
				proxy := pod.Find(&second.Spec, pod.IstioProxy)
				probers, _ := pod.Variable(proxy, meshconfig.VariableProbes)
				if command(t, second, "web") != appWait+` --app-probes {"liveness":{"httpGet":{"path":"/app-health/web/livez","port":15020}}}` ||
					app.ReadinessProbe.HTTPGet.Path != "/app-health/web/readyz" || !strings.Contains(probers, `"/app-health/web/livez":{"tcpSocket":{"port":8080}`) {
					t.Errorf("the app is %+v, Istio's agent has %s", app, probers)
				}
				if merged, _ := pod.Variable(proxy, meshconfig.VariablePrometheus); !strings.Contains(merged, "9090") || second.Annotations["prometheus.io/port"] != "15020" {
					t.Errorf("the scrape is lost: %s, %v", merged, second.Annotations)
				}
			} else {
				was := before.Spec.Containers[0]
				if resolved := intstr.FromInt32(8080); app.ReadinessProbe.HTTPGet.Path != "/ready" || app.ReadinessProbe.HTTPGet.Port != resolved || !reflect.DeepEqual(app.LivenessProbe, was.LivenessProbe) || !reflect.DeepEqual(app.Lifecycle.PostStart, was.Lifecycle.PostStart) {
					t.Errorf("%s: %+v", c.name, app)
				}
				for _, name := range []string{prometheusScrape, prometheusPort, prometheusPath} {
					if second.Annotations[name] != before.Annotations[name] {
						t.Errorf("%s: %s is %q", c.name, name, second.Annotations[name])
					}
				}
			}
			if c.outcome == LeftAlone && second.Labels[LabelInjected] != "" {
				t.Errorf("%s: labelled as injected", c.name)
			}
			checkAgain(t, c.name, second, o)
		}
	}
}

// TestInjectedByLinkerd: pods of linkerd's own injector. Its proxy as an ordinary container refuses new connections from its
// SIGTERM on, so it gets the app's hook.
func TestInjectedByLinkerd(t *testing.T) {
	for name, want := range map[string]string{"native.yaml": "", "classic.yaml": "wait --linkerd 4191 --ports 8080/http"} {
		got, r := Pod(podOfFile(t, filepath.Join("testdata/linkerd", name)), testOptions())
		if r.Proxy != Sockets || pod.Find(&got.Spec, pod.Sidecar) != nil || command(t, got, "linkerd-proxy") != want || !strings.HasPrefix(command(t, got, "app"), "wait --linkerd 4191 --ports ") {
			t.Errorf("%s: %+v: the app's hook is %q, linkerd-proxy's %q", name, r, command(t, got, "app"), command(t, got, "linkerd-proxy"))
		}
	}
}

// TestLinkerdFlags: where the admin server of linkerd's proxy is, and whether the hook may shut the proxy down.
func TestLinkerdFlags(t *testing.T) {
	const key = "config.linkerd.io/admin-port"
	for _, c := range []struct {
		pod, namespace map[string]string
		want           string
	}{
		{nil, nil, "wait --linkerd 4191 --ports 8080/http"},
		{nil, map[string]string{key: "4291"}, "wait --linkerd 4291 --ports 8080/http"},
		{map[string]string{key: "4391"}, map[string]string{key: "4291"}, "wait --linkerd 4391 --ports 8080/http"},
		{map[string]string{key: "admin"}, nil, "wait --linkerd 4191 --ports 8080/http"},
		{map[string]string{key: "0"}, nil, "wait --linkerd 4191 --ports 8080/http"},
		{map[string]string{annotationLinkerdShutdown: "true"}, nil, "wait --linkerd 4191 --linkerd-shutdown --ports 8080/http"},
	} {
		o := testOptions()
		o.Namespace = Namespace{Annotations: c.namespace}
		p := annotated("linkerd.io/inject", "enabled")
		maps.Copy(p.Annotations, c.pod)
		got, _ := Pod(p, o)
		if hook := command(t, got, "web"); !strings.HasPrefix(hook, c.want+" ") {
			t.Errorf("%v, namespace %v: the hook is %q, want %q", c.pod, c.namespace, hook, c.want)
		}
		checkAgain(t, t.Name(), got, o)
	}
}

// TestLinkerdIdle: next to a port of HTTP/2, linkerd's proxy must not keep its idle connection to the app.
func TestLinkerdIdle(t *testing.T) {
	grpc := func(value string, isInjected bool) *corev1.Pod {
		return aPod(func(p *corev1.Pod) {
			p.Annotations["linkerd.io/inject"] = "enabled"
			p.Spec.Containers[0].Ports[0].Name = "grpc"
			if isInjected {
				p.Spec.InitContainers = []corev1.Container{{Name: "linkerd-proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Env: []corev1.EnvVar{{Name: linkerdIdleVariable, Value: value}}}}
			}
		})
	}
	for _, c := range []struct {
		name                 string
		pod                  *corev1.Pod
		annotation, variable string
	}{
		{"before linkerd", grpc("", false), "2s", ""},
		{"after linkerd", grpc("90s", true), "2s", "2s"},
		{"with the mesh's own", grpc("30s", true), "", "30s"},
		{"HTTP/1.1", annotated("linkerd.io/inject", "enabled"), "", ""},
	} {
		got, _ := Pod(c.pod, testOptions())
		value, _ := pod.Variable(pod.Find(&got.Spec, "linkerd-proxy"), linkerdIdleVariable)
		if got.Annotations[linkerdIdleAnnotation] != c.annotation || value != c.variable {
			t.Errorf("%s: annotation %q, variable %q", c.name, got.Annotations[linkerdIdleAnnotation], value)
		}
		checkAgain(t, c.name, got, testOptions())
	}
	own := grpc("90s", true)
	own.Annotations[linkerdIdleAnnotation] = "7s"
	if got, _ := Pod(own, testOptions()); got.Annotations[linkerdIdleAnnotation] != "7s" {
		t.Error("the user's own value was overridden")
	}
}
