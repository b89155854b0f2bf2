package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/pod"
)

// Annotations of an Event whose termination has shown what the app does at SIGTERM with connections that only it can
// end.
const (
	AnnotationApp      = "lastcall.dev/app"      // finishes or exits
	AnnotationWorkload = "lastcall.dev/workload" // of the pod, such as deployment/web
)

// maxApps is how many workloads are remembered, the latest.
const maxApps = 4096

// appsLast is how long the findings of a termination are remembered.
const appsLast = 30 * 24 * time.Hour

// Apps has the findings of terminations about workloads' apps. It is in memory: a controller that starts reads it from
// the Events that the API server still has, those of an hour by default.
type Apps struct {
	mu    sync.Mutex // of learn
	shown *cache.LRUExpireCache
}

func newApps() *Apps { return &Apps{shown: cache.NewLRUExpireCache(maxApps)} }

// endsKept is how many ends of a workload's pods are remembered, the latest: one of them may show the wrong by chance,
// and a new version of the app shows it with each pod.
const endsKept = 5

// appEnd is the evidence of one end about the app.
type appEnd struct {
	event, pod string
	app        drain.AppEnd
	at         time.Time
}

// learn takes the findings of an Event, once.
func (a *Apps) learn(e *corev1.Event) {
	text, workload := e.Annotations[AnnotationApp], e.Annotations[AnnotationWorkload]
	app, err := drain.ParseAppEnd(text)
	if err != nil || text == "" || workload == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := e.Namespace + "/" + workload
	ends := a.of(key)
	if slices.ContainsFunc(ends, func(one appEnd) bool { return one.event == e.Name }) {
		return
	}
	ends = append(slices.Clone(ends), appEnd{e.Name, e.InvolvedObject.Name, app, e.LastTimestamp.Time})
	slices.SortStableFunc(ends, func(a, b appEnd) int { return b.at.Compare(a.at) })
	a.shown.Add(key, ends[:min(len(ends), endsKept)], appsLast)
}

// of are the ends of a workload's pods, the latest first. The list is not changed once it is remembered.
func (a *Apps) of(workload string) []appEnd {
	value, _ := a.shown.Get(workload)
	ends, _ := value.([]appEnd)
	return ends
}

// Learned returns finishes if at least half of the latest ends of the workload's pods that showed anything have shown
// it. An app that exits is unknown: its next version may finish, and the trial before the last call shows it.
func (a *Apps) Learned(namespace string, p *metav1.ObjectMeta) inject.Learned {
	ends := a.of(namespace + "/" + pod.WorkloadOf(p))
	finished, last := 0, ""
	for _, one := range ends {
		if one.app == drain.AppFinishes {
			finished, last = finished+1, cmp.Or(last, one.pod)
		}
	}
	if finished == 0 || finished*2 < len(ends) {
		return inject.Learned{}
	}
	return inject.Learned{App: drain.AppFinishes, Why: fmt.Sprintf("the end of pod %s has shown it", last)}
}

// recallPage is how many Events of a list are in memory at once.
const recallPage = 500

// recall reads the Events of earlier terminations.
func (c *Controller) recall(ctx context.Context) error {
	options := metav1.ListOptions{FieldSelector: "reportingComponent=" + reporter, Limit: recallPage}
	for read := 0; read < maxApps; {
		list, err := c.client.CoreV1().Events(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return fmt.Errorf("list Events: %w", err)
		}
		for i := range list.Items {
			c.apps.learn(&list.Items[i])
		}
		if read += len(list.Items); list.Continue == "" {
			break
		}
		options.Continue = list.Continue
	}
	return nil
}
