package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lastcall-dev/lastcall/kube/inject"
)

// plain is a pod's metadata, as it is without lastcall.
func plain(namespace, name string, change ...func(*metav1.ObjectMeta)) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), CreationTimestamp: metav1.Now()},
	}
	for _, f := range change {
		f(&p.ObjectMeta)
	}
	return p
}

func label(value string) func(*metav1.ObjectMeta) {
	return func(m *metav1.ObjectMeta) { m.Labels = map[string]string{inject.AnnotationInject: value} }
}

func selector(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// finding is a controller over a fake API server.
type finding struct {
	*cluster
	pods       *watch.FakeWatcher
	watched    chan string // the label selector
	controller *Controller
}

func find(t *testing.T, objects ...runtime.Object) *finding {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, objects...)
	f := &finding{cluster: newCluster(), pods: watch.NewFakeWithChanSize(64, false), watched: make(chan string, 8)}
	client.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
		f.watched <- a.(clienttesting.WatchActionImpl).ListOptions.LabelSelector
		return true, f.pods, nil
	})
	registry := prometheus.NewRegistry()
	controller := New(f.cluster, registry, slog.New(slog.DiscardHandler))
	controller.Find(Missed{
		Pods: client.Resource(corev1.SchemeGroupVersion.WithResource("pods")),
		Selections: func(context.Context) ([]Selection, error) {
			return []Selection{
				{selector(t, "lastcall.dev/inject in (true)"), selector(t, "lastcall.dev/inject notin (false)"), true},
				{selector(t, "lastcall.dev/inject notin (true)"), selector(t, "lastcall.dev/inject in (true)"), false},
			}, nil
		},
		Namespace: func(_ context.Context, name string) (inject.Namespace, error) {
			switch name {
			case "shop":
				return inject.Namespace{Name: name, Labels: map[string]string{"lastcall.dev/inject": "true"}}, nil
			case "unknown":
				return inject.Namespace{}, errors.New("not now")
			}
			return inject.Namespace{Name: name}, nil
		},
	}, registry)
	f.controller = controller
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *finding) count() float64 { return testutil.ToFloat64(f.controller.missed.count) }

// TestMissed: of all pods without lastcall, those that ask for it are reported.
func TestMissed(t *testing.T) {
	old := func(m *metav1.ObjectMeta) { m.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) }
	f := find(t,
		plain("shop", "missed"), plain("shop", "before-lastcall", old), plain("elsewhere", "asks", label("true")),
		plain("shop", "objects", label("false")), plain("elsewhere", "nothing"), plain("unknown", "nobody-knows"), plain("kube-system", "system", label("true")),
		plain("shop", "left-alone", func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{inject.AnnotationStatus: "left alone: hostNetwork"}
		}),
		plain("shop", "mirror", func(m *metav1.ObjectMeta) {
			m.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		}),
		plain("shop", "going", func(m *metav1.ObjectMeta) {
			now := metav1.Now()
			m.DeletionTimestamp = &now
			m.Finalizers = []string{"x/y"}
		}),
	)
	created := map[string]bool{}
	for range 2 {
		e := f.next(t)
		created[e.Namespace+"/"+e.InvolvedObject.Name] = true
		if e.Reason != ReasonNotInjected || e.Type != corev1.EventTypeWarning || e.InvolvedObject.UID == "" || len(e.Message) > maxMessage {
			t.Errorf("%+v", e)
		}
	}
	if !created["shop/missed"] || !created["elsewhere/asks"] {
		t.Errorf("events for %v", created)
	}
	if got := <-f.watched; got != "lastcall.dev/injected!=true" {
		t.Errorf("watched are pods with %s", got)
	}
	if n := f.count(); n != 3 {
		t.Errorf("%v pods are counted, want 3 with the old one", n)
	}
	// One pod is added and one deleted: the Event of the next one shows that the deletion was processed.
	f.pods.Add(plain("shop", "late"))
	f.next(t)
	f.pods.Delete(plain("shop", "missed"))
	f.pods.Add(plain("shop", "later"))
	if e := f.next(t); e.InvolvedObject.Name != "later" || f.pods.IsStopped() {
		t.Errorf("event for %s", e.InvolvedObject.Name)
	}
	if len(f.created) > 0 {
		t.Errorf("another event for %s", (<-f.created).InvolvedObject.Name)
	}
}

// TestMissedAreBounded: a namespace that asks for lastcall only now has many pods at once.
func TestMissedAreBounded(t *testing.T) {
	var all []runtime.Object
	for i := range 3 * missedBurst {
		all = append(all, plain("shop", fmt.Sprintf("p%d", i)))
	}
	f := find(t, all...)
	<-f.watched
	if n := f.count(); n != 3*missedBurst {
		t.Errorf("%v pods are counted, want %d", n, 3*missedBurst)
	}
	dropped := counted(f.controller, "dropped")
	if dropped == 0 || dropped > 2*missedBurst {
		t.Errorf("%v events were dropped, want almost %d", dropped, 2*missedBurst)
	}
}
