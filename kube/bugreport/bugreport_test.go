package bugreport

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lastcall-dev/lastcall/kube/check"
)

const secret = "hunter2-hunter2"

func secretive() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{"lastcall.dev/injected": "true"},
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "env " + secret, "example.com/api-key": secret, "example.com/team": "blue"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "lastcall", Image: "lastcall:1", Env: []corev1.EnvVar{{Name: "LASTCALL_HOOK_TOKEN", Value: secret}, {Name: "MINIMUM_DRAIN_DURATION", Value: "5s"}}}},
			Containers: []corev1.Container{{
				Name: "web", Image: "web:1",
				Env: []corev1.EnvVar{
					{Name: "DATABASE_URL", Value: "postgres://user:" + secret + "@db/shop"}, {Name: "STRIPE_API_KEY", Value: secret}, {Name: "MODE", Value: "fast"},
					{Name: "HEADERS", Value: `{"Authorization":"Basic ` + secret + `"}`},
					{Name: "FROM_SECRET_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "password"}}},
				},
				Args:           []string{"--password=" + secret, "--token", secret, "--listen", ":8080", "DB_PASSWORD=" + secret},
				Lifecycle:      &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/wait/" + secret}}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", HTTPHeaders: []corev1.HTTPHeader{{Name: "X-Auth", Value: secret}}}}},
			}},
		},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "lastcall", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: `{"verdict":"clean","mode":"exit-on-zero","trigger":"SIGTERM","began":"2026-01-02T03:04:05Z","duration_ms":1500,"phases":[],"late":0}`}},
		}}},
	}
}

func clients(t *testing.T) check.Clients {
	t.Helper()
	api := fake.NewClientset(secretive(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s"}, Data: map[string][]byte{"a": []byte(secret)}},
		&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e"}, Reason: "Drained", Message: "drained in 1.5s"})
	api.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.34.4"}
	return check.Clients{Core: api.CoreV1(), Apps: api.AppsV1(), Admission: api.AdmissionregistrationV1(), Endpoints: api.DiscoveryV1(), Authorization: api.AuthorizationV1(), Server: api.Discovery()}
}

func options() Options {
	return Options{
		Check:   check.Options{Namespace: "lastcall-system", Name: "lastcall-webhook", Timeout: 5 * time.Second, Now: time.Now()},
		Program: "1.2.3",
		Exec: func(_ context.Context, namespace, pod, container string, command []string) ([]byte, error) {
			if command[1] == "request" {
				return nil, errors.New("the sidecar does not respond")
			}
			return []byte(namespace + "/" + pod + "/" + container + ": " + strings.Join(command, " ")), nil
		},
	}
}

// report writes one and returns its files.
func report(t *testing.T, o Options) map[string]string {
	t.Helper()
	var b bytes.Buffer
	files, problems, err := Write(t.Context(), &b, clients(t), o)
	if err != nil {
		t.Fatal(err)
	}
	read, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if len(read.File) != files {
		t.Errorf("%d files, %d reported", len(read.File), files)
	}
	all := map[string]string{}
	for _, f := range read.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(f.Name, "lastcall-bug-report/")] = string(text)
	}
	if len(problems) > 0 && all["errors.txt"] == "" {
		t.Errorf("%d problems, and no errors.txt", len(problems))
	}
	return all
}

func TestReport(t *testing.T) {
	all := report(t, options())
	for name, want := range map[string]string{
		"README.txt":                            "LOOK AT THE FILES",
		"versions.txt":                          "kubernetes: v1.34.4",
		"check.txt":                             "the controller is running",
		"check.json":                            `"status": "error"`,
		"errors.txt":                            "the sidecar does not respond",
		"pods/list.txt":                         "shop/web-1",
		"pods/shop/events.txt":                  "Drained",
		"pods/shop/web-1/pod.yaml":              "DATABASE_URL",
		"pods/shop/web-1/lastcall.log":          "fake logs",
		"pods/shop/web-1/lastcall.previous.log": "fake logs",
		"pods/shop/web-1/report-lastcall.txt":   "drained in 1.5s; nothing cut",
		"pods/shop/web-1/connections.json":      "shop/web-1/lastcall: /lastcall connections -o json",
	} {
		if !strings.Contains(all[name], want) {
			t.Errorf("%s: %.300q, want %q", name, all[name], want)
		}
	}
	for name, text := range all {
		if strings.Contains(text, secret) {
			t.Errorf("%s contains a secret:\n%s", name, text)
		}
	}
	pod := all["pods/shop/web-1/pod.yaml"]
	for _, kept := range []string{"value: 5s", "value: fast", ":8080", "blue", "secretKeyRef"} {
		if !strings.Contains(pod, kept) {
			t.Errorf("the manifest lost %q:\n%s", kept, pod)
		}
	}
}

func TestNamedPods(t *testing.T) {
	o := options()
	o.Pods, o.Exec = []string{"shop/web-1", "nowhere"}, nil
	all := report(t, o)
	if all["pods/shop/web-1/pod.yaml"] == "" || !strings.Contains(all["errors.txt"], `"nowhere" not found`) {
		t.Errorf("%v", all["errors.txt"])
	}
	if all["pods/shop/web-1/connections.json"] != "" {
		t.Error("a command ran in the sidecar")
	}
}

func TestFilesAreBounded(t *testing.T) {
	o := options()
	o.Exec = func(context.Context, string, string, string, []string) ([]byte, error) {
		return bytes.Repeat([]byte("x"), 3<<20), nil
	}
	if n := len(report(t, o)["pods/shop/web-1/connections.json"]); n > mostFile+100 {
		t.Errorf("%d bytes", n)
	}
}

// TestOriginalIsUntouched has Pod copy what it redacts.
func TestOriginalIsUntouched(t *testing.T) {
	p := secretive()
	_ = Pod(p)
	if p.Spec.Containers[0].Env[1].Value != secret || p.Spec.Containers[0].Args[0] != "--password="+secret || p.Annotations["example.com/api-key"] != secret {
		t.Error("the original was changed")
	}
}
