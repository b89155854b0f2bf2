package check

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

const system, hook = "lastcall-system", "lastcall-webhook"

// cluster is a fake one in which all is well.
type cluster struct {
	version string
	kernel  string
	ready   bool
	injects bool
	image   string
	denied  string // resource that the user may not read
	nothing bool   // lastcall is not installed
	late    string // a container that was added after lastcall

	bare map[string]string // labels of a pod without lastcall, in a namespace without a label; nil: there is none
}

func healthy() cluster {
	return cluster{version: "v1.34.4", kernel: "6.1.0-18-amd64", ready: true, injects: true, image: "registry.example.com/lastcall:1.2.0"}
}

func (f cluster) clients(t *testing.T) workload.Clients {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: system, Name: name} }
	objects := []runtime.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KernelVersion: f.kernel, KubeletVersion: f.version}}},
	}
	if f.bare != nil {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "plain", Name: "web-2", Labels: f.bare}})
	}
	containers := []corev1.Container{{Name: "web", Image: "web:1"}}
	if f.late != "" {
		containers = append(containers, corev1.Container{Name: f.late, Image: "proxy:1"})
	}
	if !f.nothing {
		ready := int32(0)
		if f.ready {
			ready = 2
		}
		objects = append(objects,
			&appsv1.Deployment{ObjectMeta: meta(hook), Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "webhook", Image: "registry.example.com/lastcall-controller:1.2.0"}}}}}, Status: appsv1.DeploymentStatus{ReadyReplicas: ready}},
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"lastcall.dev/inject": "true"}}},
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"lastcall.dev/injected": "true"}}, Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Name: "lastcall-capture", Image: f.image}, {Name: "lastcall", Image: f.image, RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
				Containers:     containers,
			}},
		)
	}
	api := fake.NewClientset(objects...)
	api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		if dry := create.GetCreateOptions().DryRun; len(dry) != 1 || dry[0] != metav1.DryRunAll {
			t.Errorf("a pod was created without dry run: %v", dry)
		}
		pod := create.GetObject().(*corev1.Pod).DeepCopy()
		if f.injects {
			pod.Labels["lastcall.dev/injected"] = "true"
		}
		return true, pod, nil
	})
	if f.denied != "" {
		for _, verb := range []string{"get", "list"} {
			api.PrependReactor(verb, f.denied, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: f.denied}, "", nil)
			})
		}
	}
	return workload.Clients{Core: api.CoreV1(), Apps: api.AppsV1()}
}

func options() Options {
	return Options{Namespace: system, Name: hook, Version: "v1.2.0", Timeout: 5 * time.Second}
}

func TestHealthyCluster(t *testing.T) {
	r := Run(t.Context(), healthy().clients(t), options())
	if r.Status() != OK || r.Count(OK) < 10 {
		var text bytes.Buffer
		_ = r.WriteText(&text, console.Style{})
		t.Errorf("status %s:\n%s", r.Status(), &text)
	}
}

// TestProblems breaks one thing at a time.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*cluster, *Options)
		status Status
		check  string // its name begins so
		detail string // contains
	}{
		"old Kubernetes":        {func(f *cluster, _ *Options) { f.version = "v1.28.3" }, Failed, "kubelets have native sidecars", "node (v1.28.3)"},
		"old kernel":            {func(f *cluster, _ *Options) { f.kernel = "3.10.0-1160.el7.x86_64" }, Failed, "kernels can capture", "node (3.10.0-1160"},
		"not installed":         {func(f *cluster, _ *Options) { f.nothing = true }, Failed, "the controller is running", "no Deployment"},
		"no ready replica":      {func(f *cluster, _ *Options) { f.ready = false }, Failed, "the controller is running", "0 of 2"},
		"a webhook not reached": {func(f *cluster, _ *Options) { f.injects = false }, Failed, "the API server reaches the webhook", "would not be injected"},
		"another version":       {func(_ *cluster, o *Options) { o.Version = "1.3.0" }, Warning, "sidecars have the version", "1.2.0 (2 times); this is 1.3.0"},
		"called only once":      {func(f *cluster, _ *Options) { f.late = "istio-proxy" }, Failed, "no proxy was added after lastcall", "shop/web-1: two proxies capture its traffic"},
		"a pod that asks": {func(f *cluster, o *Options) {
			f.bare, o.Pods = map[string]string{"lastcall.dev/inject": "true"}, "plain"
		}, Warning, "all pods that request injection", "1 are not: plain/web-2"},
		"a pod that asks Istio": {func(f *cluster, _ *Options) { f.bare = map[string]string{"sidecar.istio.io/inject": "true"} }, OK, "all pods that request injection", ""},
		"kernel not readable":   {func(f *cluster, _ *Options) { f.kernel = "unknown" }, Failed, "kernels can capture", "node (unknown)"},
		"may not list nodes":    {func(f *cluster, _ *Options) { f.denied = "nodes" }, Warning, "the API server lists the nodes", "not checked"},
	} {
		t.Run(name, func(t *testing.T) {
			f, o := healthy(), options()
			c.change(&f, &o)
			r := Run(t.Context(), f.clients(t), o)
			if r.Status() != c.status {
				t.Errorf("status %s, want %s", r.Status(), c.status)
			}
			found := false
			for _, g := range r.Groups {
				for _, one := range g.Checks {
					if strings.HasPrefix(one.Name, c.check) && one.Status == c.status {
						found = true
						if !strings.Contains(one.Detail, c.detail) {
							t.Errorf("%s: %q, want %q", one.Name, one.Detail, c.detail)
						}
					}
				}
			}
			if !found {
				var text bytes.Buffer
				_ = r.WriteText(&text, console.Style{})
				t.Errorf("no check %q with status %s:\n%s", c.check, c.status, &text)
			}
		})
	}
}

func TestPreOnEmptyCluster(t *testing.T) {
	f, o := healthy(), options()
	f.nothing, o.Pre = true, true
	if r := Run(t.Context(), f.clients(t), o); r.Status() != OK {
		t.Errorf("%+v", r)
	}
}

// TestHangingAPI has an API server that accepts connections and does not respond.
func TestHangingAPI(t *testing.T) {
	free := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-free }))
	defer server.Close()
	defer close(free)
	clients, err := workload.Connect(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Timeout = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := Run(ctx, clients, o)
	if ctx.Err() != nil || r.Status() != Failed || len(r.Groups) != 1 {
		t.Errorf("%v, %+v", ctx.Err(), r)
	}
}

func TestText(t *testing.T) {
	r := &Result{Groups: []Group{{"Nodes", []Check{
		{Name: "there are Linux nodes", Status: OK, Detail: "3"},
		{Name: "kernels can capture traffic", Status: Failed, Detail: "not: a", Hint: "upgrade", Page: "install.md"},
	}}}}
	var plain, colour bytes.Buffer
	if err := r.WriteText(&plain, console.Style{}); err != nil {
		t.Fatal(err)
	}
	want := "Nodes\n─────\nok   there are Linux nodes: 3\nFAIL kernels can capture traffic\n     not: a\n     hint: upgrade\n     see https://github.com/lastcall-dev/lastcall/blob/main/docs/install.md\n\nFAIL: 1 ok, 0 warnings, 1 error\n"
	if plain.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &plain, want)
	}
	if err := r.WriteText(&colour, console.Style{Colour: true}); err != nil || !strings.Contains(colour.String(), "\x1b[32mok  \x1b[0m there are") {
		t.Errorf("%v, %q", err, &colour)
	}
	var text bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Status string
		Groups []Group
	}
	if err := json.Unmarshal(text.Bytes(), &read); err != nil || read.Status != "error" || len(read.Groups) != 1 {
		t.Errorf("%v, %s", err, &text)
	}
}
