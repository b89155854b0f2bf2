package ephemeral

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// result has the output of a run.
type result struct {
	mu     sync.Mutex
	ended  map[string]string // verdict by pod
	failed map[string]string // error by pod
	lost   int
	notes  []string
	noted  func() // is called after each note
}

func (r *result) Ended(t advice.Termination) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[t.Pod] = t.Verdict
	if grace := t.Deadline.Sub(t.Began); !t.Began.IsZero() && grace < 20*time.Second {
		r.ended[t.Pod] += fmt.Sprintf(", SIGKILL after %v", grace)
	}
	r.lost += t.Traffic.Lost.Total()
}

func (r *result) Missed(pod string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed[pod] = err.Error()
}

func (r *result) Note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
	if r.noted != nil {
		r.noted()
	}
}

func (r *result) options(restart bool) Options {
	r.ended, r.failed = map[string]string{}, map[string]string{}
	o := Options{Image: "lastcall:1", Limit: time.Minute, Rounds: 1, Report: r}
	if restart {
		o.Restart = func(int, int) error { return nil }
	}
	return o
}

func web(t *testing.T) *workload.Workload {
	w, err := workload.Parse(namespace, "deploy/web")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestRun(t *testing.T) {
	c := newCluster(t, map[string]ending{
		"clean":  {log: []string{report(`"open":1`)}},
		"lost":   {log: []string{report(`"lost":{"reset":2,"refused":1}`)}},
		"killed": {log: []string{report(`"unclear":{"unfinished":3}`)}, code: 137},          // SIGKILL ends the observer as well
		"late":   {log: []string{report(`"unclear":{"unfinished":3}`), report(`"open":3`)}}, // all were answered in the last second
		"torn":   {log: []string{`{"begin":`}},
		"silent": {},
		"broken": {log: []string{"observe: no netlink here"}},
	})
	var r result
	left, err := Run(t.Context(), c.clients(), web(t), r.options(true))
	if err != nil || len(left) > 0 {
		t.Fatalf("left %q, error %v", left, err)
	}
	want := map[string]string{"clean": "clean", "lost": "lost", "killed": "lost", "late": "clean", "torn": "unknown", "silent": "unknown", "broken": "unknown"}
	if !maps.Equal(r.ended, want) || len(r.failed) > 0 || r.lost != 6 {
		t.Errorf("verdicts %v, failed %v, lost %d; want %v", r.ended, r.failed, r.lost, want)
	}
}

// Without a restart it waits for the user's; Ctrl-C then names the pods whose observers remain.
func TestInterrupted(t *testing.T) {
	c := newCluster(t, map[string]ending{"a": {}, "b": {}})
	ctx, cancel := context.WithCancel(t.Context())
	var r result
	o := r.options(false)
	r.noted = func() {
		if len(r.notes) == 2 {
			cancel()
		}
	}
	left, err := Run(ctx, c.clients(), web(t), o)
	if !slices.Equal(left, []string{"a", "b"}) || err != nil || len(r.failed) > 0 {
		t.Errorf("left %q, error %v, failed %v", left, err, r.failed)
	}
}

func TestDeclined(t *testing.T) {
	c := newCluster(t, map[string]ending{"a": {}})
	var r result
	o := r.options(false)
	declined := errors.New("not confirmed")
	o.Restart = func(int, int) error { return declined }
	left, err := Run(t.Context(), c.clients(), web(t), o)
	if !errors.Is(err, declined) || !slices.Equal(left, []string{"a"}) {
		t.Errorf("left %q, error %v", left, err)
	}
	for _, a := range c.set.Actions() {
		if a.GetVerb() == "patch" && a.GetResource().Resource == "deployments" {
			t.Error("the Deployment was patched")
		}
	}
}

// A rollout that does not complete is waited for, not in silence.
func TestUnsettled(t *testing.T) {
	c := newCluster(t, map[string]ending{"a": {}})
	d, err := c.set.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Status.AvailableReplicas = 0
	if _, err := c.set.AppsV1().Deployments(namespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := result{noted: cancel}
	left, err := Run(ctx, c.clients(), web(t), r.options(true))
	const want = "the rollout of deployment/web to complete: 0 of 1 replicas available"
	if !slices.Equal(r.notes, []string{"waiting for " + want}) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "wait for "+want) || len(left) > 0 {
		t.Errorf("announced %q, left %q, error %v", r.notes, left, err)
	}
}

// What does not work is an error with the right or the step that is missing.
func TestErrors(t *testing.T) {
	forbid := func(verb, why string) func(*cluster, *Options) {
		return func(c *cluster, _ *Options) {
			c.set.PrependReactor(verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New(why))
			})
		}
	}
	for name, c := range map[string]struct {
		prepare func(c *cluster, o *Options)
		want    string
	}{
		"no right":          {forbid("patch", "no"), "(needed in namespace shop: patch on pods/ephemeralcontainers)"},
		"pod security":      {forbid("patch", `violates PodSecurity "restricted:latest"`), "the pod itself must satisfy the namespace's pod security level"},
		"no right to watch": {forbid("list", "no"), "(needed in namespace shop: list"},
		"no image":          {func(_ *cluster, o *Options) { o.Image = "other:1" }, "its observer does not start: ErrImagePull: not found"},
		"the node's network": {func(c *cluster, _ *Options) {
			p, _ := c.set.CoreV1().Pods(namespace).Get(c.t.Context(), "a", metav1.GetOptions{})
			p.Spec.HostNetwork = true
			_, _ = c.set.CoreV1().Pods(namespace).Update(c.t.Context(), p, metav1.UpdateOptions{})
		}, "it uses the node's network"},
		"paused": {func(c *cluster, _ *Options) {
			d, _ := c.set.AppsV1().Deployments(namespace).Get(c.t.Context(), "web", metav1.GetOptions{})
			d.Spec.Paused = true
			_, _ = c.set.AppsV1().Deployments(namespace).Update(c.t.Context(), d, metav1.UpdateOptions{})
		}, "kubectl rollout resume deployment/web"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newCluster(t, map[string]ending{"a": {}})
			var r result
			o := r.options(true)
			c.prepare(fake, &o)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := Run(ctx, fake.clients(), web(t), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// What pod security "restricted" requires of a container (policy checks of k8s.io/pod-security-admission, 1.37).
func TestContainerIsRestricted(t *testing.T) {
	one := container(Options{Image: "lastcall:1", Limit: time.Minute}, &corev1.Pod{})
	s := one.SecurityContext
	if *s.AllowPrivilegeEscalation || !*s.RunAsNonRoot || *s.RunAsUser == 0 || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		len(s.Capabilities.Add) > 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault || *s.Privileged || !*s.ReadOnlyRootFilesystem {
		t.Errorf("%+v", s)
	}
	if want := []string{"observe", "--pod", "--json", "--for", "1m0s", "--grace", "30s", "--known"}; !slices.Equal(one.Args[:len(want)], want) {
		t.Errorf("arguments %q", one.Args)
	}
}

// Behind a sidecar, requests that the app loses count, too.
func TestContainerBehindSidecar(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}, {Name: "istio-proxy"}}}}
	args := container(Options{Image: "lastcall:1", Limit: time.Minute}, pod).Args
	var got observe.Options
	if err := json.Unmarshal([]byte(args[len(args)-1]), &got); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.IgnorePorts, 15021) || !slices.Contains(got.ProxyPorts, 15006) || got.Attempts != 3 {
		t.Errorf("arguments %q", args)
	}
}
