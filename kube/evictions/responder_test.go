package evictions

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// sidecar is the status port of the pod.
type sidecar struct{ busy atomic.Int64 }

func (s *sidecar) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "10.0.0.7:15020" || s.busy.Load() < 0 {
		return nil, fmt.Errorf("no sidecar at %s", r.URL.Host)
	}
	body := fmt.Sprintf("# TYPE lastcall_connections gauge\nlastcall_connections{state=\"busy\"} %d\nlastcall_connections{state=\"idle\"} 3\n", s.busy.Load())
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// scene is a cluster with a pod and an Eviction of it.
type scene struct {
	*fake.Clientset
	sidecar
	t *testing.T
}

func play(t *testing.T, owner string) *scene {
	isController := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u-1",
			Annotations:     map[string]string{carrier.AnnotationStatus: carrier.Injected},
			Labels:          map[string]string{"app": "web", "tier": "front", carrier.LabelInjected: "true"},
			OwnerReferences: []metav1.OwnerReference{{Kind: owner, Name: "web", Controller: &isController}}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: carrier.Sidecar,
			Env: []corev1.EnvVar{{Name: carrier.HookToken, Value: strings.Repeat("a", 32)}}}, {Name: "app"}}},
		Status: corev1.PodStatus{PodIP: "10.0.0.7", Phase: corev1.PodRunning},
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"tier": "back"}}}
	eviction := &lifecycle.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e-1", UID: "e-1"},
		Spec: lifecycle.EvictionSpec{Target: lifecycle.EvictionTarget{Pod: &lifecycle.EvictionPodReference{Name: "web-1", UID: "u-1"}}},
		Status: lifecycle.EvictionStatus{
			TargetResponders: []lifecycle.TargetResponder{{Name: Name, State: lifecycle.ResponderStateInactive}, {Name: lifecycle.EvictionResponderImperativeEviction}},
			Responders:       []lifecycle.ResponderStatus{{Name: Name}, {Name: lifecycle.EvictionResponderImperativeEviction}}}}
	return &scene{Clientset: fake.NewClientset(pod, service, other, eviction), t: t}
}

func (s *scene) run() {
	r := New(s, slog.New(slog.DiscardHandler))
	r.http.Transport = &s.sidecar
	go func() { _ = r.Run(s.t.Context()) }()
	s.after(time.Second)
}

// after lets time pass and returns the responder's part of the status.
func (s *scene) after(d time.Duration) lifecycle.ResponderStatus {
	time.Sleep(d)
	synctest.Wait()
	e, err := s.LifecycleV1alpha1().Evictions("shop").Get(s.t.Context(), "e-1", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return e.Status.Responders[0]
}

// becomes does the work of Kubernetes' controller.
func (s *scene) becomes(state lifecycle.ResponderStateType) {
	evictions := s.LifecycleV1alpha1().Evictions("shop")
	e, err := evictions.Get(s.t.Context(), "e-1", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	e.Status.TargetResponders[0].State = state
	if _, err := evictions.UpdateStatus(s.t.Context(), e, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) labels() (labels map[string]string, released string) {
	pod, err := s.CoreV1().Pods("shop").Get(s.t.Context(), "web-1", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return pod.Labels, pod.Annotations[AnnotationReleased]
}

func want(t *testing.T, s lifecycle.ResponderStatus, message string, isComplete bool) {
	t.Helper()
	got := ""
	if s.Message != nil {
		got = *s.Message
	}
	if !strings.HasPrefix(got, message) || (s.CompletionTime != nil) != isComplete {
		t.Errorf("%q, completed %v; want %q, %v", got, s.CompletionTime, message, isComplete)
	}
}

// A pod is drained for as long as it takes, out of its Services, with heartbeats.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, "ReplicaSet")
		s.busy.Store(2)
		s.run()
		want(t, s.after(time.Minute), "", false) // it is not its turn
		s.becomes(lifecycle.ResponderStateActive)
		want(t, s.after(6*time.Second), "waiting for 2 conversations", false)
		if labels, released := s.labels(); labels["app"] != "" || labels["tier"] != "front" || released != `{"app":"web"}` {
			t.Errorf("labels %v, released %s", labels, released)
		}
		for range 2 { // far beyond any grace period
			first := s.after(30 * time.Minute).HeartbeatTime.Time
			if gap := time.Since(first); gap > heartbeatEvery+lookEvery {
				t.Errorf("the last heartbeat was %v ago", gap)
			}
		}
		s.busy.Store(-1) // the sidecar does not answer: it is not taken for idle
		want(t, s.after(2*time.Minute), "cannot read what the pod waits for", false)
		s.busy.Store(1)
		want(t, s.after(time.Minute), "waiting for 1 conversations", false)
		s.busy.Store(0)
		want(t, s.after(10*time.Second), "waiting for 1 conversations", false) // within the quiet time
		want(t, s.after(20*time.Second), "drained in 1h3m", true)
	})
}

// A cancelled eviction gives the pod its labels back.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, "ReplicaSet")
		s.busy.Store(1)
		s.run()
		s.becomes(lifecycle.ResponderStateActive)
		s.after(time.Minute)
		s.becomes(lifecycle.ResponderStateCanceled)
		want(t, s.after(time.Minute), "waiting", false)
		if labels, released := s.labels(); labels["app"] != "web" || released != "" {
			t.Errorf("labels %v, released %s", labels, released)
		}
	})
}

// Pods that this cannot drain are left to Kubernetes' own eviction at once; a pod that has ended is complete.
func TestOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(t, "StatefulSet")
		s.run()
		s.becomes(lifecycle.ResponderStateActive)
		want(t, s.after(time.Second), "not drained before its deletion: a StatefulSet", true)
	})
	synctest.Test(t, func(t *testing.T) {
		s := play(t, "ReplicaSet")
		s.busy.Store(1)
		s.run()
		s.becomes(lifecycle.ResponderStateActive)
		s.after(time.Minute)
		if err := s.CoreV1().Pods("shop").Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want(t, s.after(10*time.Second), "the pod has ended", true)
	})
}
