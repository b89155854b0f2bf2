package events

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/inject"
)

// ownedBy is the metadata of a pod of a Deployment.
func ownedBy(deployment, pod string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{
		Name: pod, Namespace: "shop", Labels: map[string]string{"pod-template-hash": "abc"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: deployment + "-abc", Controller: &yes}},
	}
}

// endedPod is a pod of which a container has written a report that shows what the app does.
func endedPod(t *testing.T, deployment, name, app string, at time.Time) *corev1.Pod {
	t.Helper()
	text := fmt.Sprintf(`{"verdict":"clean","mode":"exit-on-zero","trigger":"SIGTERM","began":%q,"finish":{"app":%q}}`, at.Format(time.RFC3339Nano), app)
	return &corev1.Pod{ObjectMeta: ownedBy(deployment, name), Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "lastcall", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: text, FinishedAt: metav1.NewTime(at)}},
	}}}}
}

// distinct are Events in another order, each once.
func distinct(all []*corev1.Event) (out []runtime.Object) {
	seen := map[string]bool{}
	for _, e := range slices.Backward(all) {
		if !seen[e.Name] {
			seen[e.Name], out = true, append(out, e)
		}
	}
	return out
}

// What the end of one pod shows of its app is used for the next pods of its workload, also by a controller that starts later.
func TestApps(t *testing.T) {
	now := time.Now()
	c := &Controller{apps: newApps()}
	var made []*corev1.Event
	end := func(deployment, name, app string, at time.Time) {
		trimmed, _ := Trim(endedPod(t, deployment, name, app, at))
		for _, e := range eventsOf(trimmed.(*corev1.Pod), now) {
			c.apps.learn(e)
			made = append(made, e)
		}
	}
	check := func(apps *Apps, namespace, deployment string, want inject.Learned) {
		t.Helper()
		next := ownedBy(deployment, "")
		if got := apps.Learned(namespace, &next); got != want {
			t.Errorf("%s/%s: %+v, want %+v", namespace, deployment, got, want)
		}
	}
	end("web", "web-abc-1", "finishes", now.Add(-2*time.Minute))
	end("api", "api-abc-1", "exits", now.Add(-2*time.Minute))
	end("old", "old-abc-1", "finishes", now.Add(-2*time.Minute))
	end("old", "old-abc-2", "exits", now.Add(-time.Minute))
	end("none", "none-abc-1", "", now.Add(-time.Minute))
	end("new", "new-abc-1", "finishes", now.Add(-3*time.Minute))
	end("new", "new-abc-2", "exits", now.Add(-2*time.Minute))
	end("new", "new-abc-3", "exits", now.Add(-time.Minute))
	for i := range endsKept { // a pod's state comes several times
		end("old", "old-abc-2", "exits", now.Add(-time.Minute))
		end("long", fmt.Sprintf("long-abc-%d", i), "finishes", now.Add(-time.Hour))
	}
	for i := range (endsKept + 1) / 2 {
		end("long", fmt.Sprintf("long-abc-%d", endsKept+i), "exits", now.Add(time.Duration(i-10)*time.Minute))
	}
	later := &Controller{client: fake.NewClientset(distinct(made)...), apps: newApps()}
	if err := later.recall(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, apps := range []*Apps{c.apps, later.apps} {
		check(apps, "shop", "web", inject.Learned{App: drain.AppFinishes, Why: "the end of pod web-abc-1 has shown it"})
		check(apps, "shop", "api", inject.Learned{})
		check(apps, "shop", "old", inject.Learned{App: drain.AppFinishes, Why: "the end of pod old-abc-1 has shown it"}) // one may be by chance
		check(apps, "shop", "new", inject.Learned{})
		check(apps, "shop", "long", inject.Learned{})
		check(apps, "shop", "none", inject.Learned{})
		check(apps, "other", "web", inject.Learned{})
	}
	for i := range maxApps {
		c.apps.learn(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Annotations: map[string]string{
			AnnotationApp: "finishes", AnnotationWorkload: fmt.Sprint("deployment/", i),
		}}})
	}
	if check(c.apps, "shop", "web", inject.Learned{}); len(c.apps.shown.Keys()) != maxApps {
		t.Errorf("%d workloads are remembered; the limit is %d", len(c.apps.shown.Keys()), maxApps)
	}
}
