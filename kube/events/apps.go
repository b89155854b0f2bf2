package events

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/kube/carrier"
	"github.com/lastcall-dev/lastcall/kube/inject"
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

type shown struct {
	app drain.AppEnd
	pod string
	at  time.Time
}

// noteApp adds to an Event its report's findings about the app.
func noteApp(e *corev1.Event, pod *corev1.Pod, r drain.Report) {
	if r.Finish != nil && r.Finish.App != "" && pod.Annotations[AnnotationWorkload] != "" {
		workload := pod.Annotations[AnnotationWorkload]
		e.Annotations = map[string]string{AnnotationApp: r.Finish.App, AnnotationWorkload: workload}
	}
}

// learn takes the findings of an Event, unless a later one has come before.
func (a *Apps) learn(e *corev1.Event) {
	text, workload := e.Annotations[AnnotationApp], e.Annotations[AnnotationWorkload]
	app, err := drain.ParseAppEnd(text)
	if err != nil || text == "" || workload == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := e.Namespace + "/" + workload
	if before := a.of(key); !before.at.After(e.LastTimestamp.Time) {
		a.shown.Add(key, shown{app, e.InvolvedObject.Name, e.LastTimestamp.Time}, appsLast)
	}
}

func (a *Apps) of(workload string) shown {
	value, _ := a.shown.Get(workload)
	s, _ := value.(shown)
	return s
}

// Learned returns finishes if the latest termination of the pod's workload has shown it. An app that has exited is
// unknown again: its next version may finish, and the trial before the last call shows it.
func (a *Apps) Learned(namespace string, pod *metav1.ObjectMeta) inject.Learned {
	s := a.of(namespace + "/" + carrier.WorkloadOf(pod))
	if s.app != drain.AppFinishes {
		return inject.Learned{}
	}
	return inject.Learned{App: s.app, Why: fmt.Sprintf("the end of pod %s has shown it", s.pod)}
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
