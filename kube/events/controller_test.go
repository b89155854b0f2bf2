package events

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lastcall-dev/lastcall/drain"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func reportOf(verdict drain.Verdict) drain.Report {
	return drain.Report{
		Verdict: verdict, Mode: "exit-on-zero", Trigger: "SIGTERM", Began: time.Now().Add(-13 * time.Second), Duration: drain.Millis(12_340 * time.Millisecond),
		Phases: []drain.Span{{Phase: drain.Draining, Took: drain.Millis(5 * time.Second)}, {Phase: drain.Waiting, Took: drain.Millis(7_340 * time.Millisecond)}},
		HeldBy: []drain.Conversation{{Peer: "10.244.0.7:51234", Protocol: "http/1.1", Request: "GET /delay/10"}},
	}
}

func message(t *testing.T, r drain.Report) string {
	t.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// running is a pod in which nothing has ended.
func running(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Labels: map[string]string{"lastcall.dev/injected": "true"}},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "lastcall"}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "app"}},
		},
	}
}

// ended is the same pod when its sidecar has left a message.
func ended(name, text string) *corev1.Pod {
	pod := running(name)
	pod.Status.InitContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Message: text, FinishedAt: metav1.Now()}
	return pod
}

// cluster is an API server that keeps Events and reports their creation.
type cluster struct {
	*fake.Clientset
	pods      *watch.FakeWatcher
	watched   chan struct{}
	created   chan *corev1.Event // every attempt
	answer    func(n int) error  // to the n-th attempt
	n         int
	requested clienttesting.WatchRestrictions
}

func newCluster(pods ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(pods...), pods: watch.NewFakeWithChanSize(64, false), watched: make(chan struct{}, 8), created: make(chan *corev1.Event, 256)}
	c.PrependWatchReactor("pods", func(a clienttesting.Action) (bool, watch.Interface, error) {
		c.requested = a.(clienttesting.WatchAction).GetWatchRestrictions()
		c.watched <- struct{}{}
		return true, c.pods, nil
	})
	var mu sync.Mutex
	c.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		mu.Lock()
		defer mu.Unlock()
		c.n++
		e := a.(clienttesting.CreateAction).GetObject().(*corev1.Event)
		defer func() { c.created <- e }()
		if c.answer != nil {
			if err := c.answer(c.n); err != nil {
				return true, nil, err
			}
		}
		return false, nil, nil
	})
	return c
}

func (c *cluster) next(t *testing.T) *corev1.Event {
	t.Helper()
	select {
	case e := <-c.created:
		return e
	case <-time.After(patience):
		t.Fatal("no event was made")
		return nil
	}
}

// run starts a controller, and returns its end, after which all that was to be made has been.
func run(t *testing.T, c *cluster) (*Controller, func()) {
	t.Helper()
	controller := New(c, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- controller.Run(ctx) }()
	once := sync.OnceFunc(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(once)
	return controller, once
}

func TestEventOfATermination(t *testing.T) {
	c := newCluster()
	_, stop := run(t, c)
	<-c.watched
	c.pods.Add(running("web"))
	c.pods.Modify(ended("web", message(t, reportOf(drain.Clean))))
	e := c.next(t)
	if e.Type != "Normal" || e.Reason != "Drained" || e.InvolvedObject.Name != "web" || e.InvolvedObject.UID != "uid-web" || e.InvolvedObject.Kind != "Pod" ||
		e.InvolvedObject.FieldPath != "spec.initContainers{lastcall}" || e.Namespace != "shop" || e.LastTimestamp.IsZero() {
		t.Errorf("%+v", e)
	}
	if want := "drained in 12.3s: 5.0s minimum drain, 7.3s waiting for GET /delay/10 from 10.244.0.7; nothing cut"; e.Message != want {
		t.Errorf("%q, want %q", e.Message, want)
	}
	c.pods.Modify(ended("web", message(t, reportOf(drain.Clean)))) // another status update
	c.pods.Delete(ended("web", message(t, reportOf(drain.Clean))))
	c.pods.Modify(ended("other", message(t, reportOf(drain.Cut))))
	if e := c.next(t); e.InvolvedObject.Name != "other" || e.Type != "Warning" || e.Reason != "DrainCut" {
		t.Errorf("created twice, or wrong: %+v", e)
	}
	c.pods.Add(running("gone"))
	c.pods.Delete(ended("gone", message(t, reportOf(drain.Clean)))) // the report is in the DELETED event only
	if e := c.next(t); e.InvolvedObject.Name != "gone" || e.Reason != "Drained" {
		t.Errorf("deleted with its last update: %+v", e)
	}
	stop()
	if got := c.requested.Labels.String(); got != "lastcall.dev/injected=true" {
		t.Errorf("pods were selected by %q", got)
	}
}

// TestTwoReplicasAndARestart make one Event in all.
func TestTwoReplicasAndARestart(t *testing.T) {
	c := newCluster(ended("web", message(t, reportOf(drain.Clean))))
	first, stopFirst := run(t, c)
	a := c.next(t)
	second, stopSecond := run(t, c)
	b := c.next(t)
	stopFirst()
	stopSecond()
	again, stopAgain := run(t, c)
	if third := c.next(t); a.Name != b.Name || b.Name != third.Name {
		t.Errorf("names %s, %s and %s", a.Name, b.Name, third.Name)
	}
	stopAgain()
	all, err := c.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Errorf("%d events, error %v", len(all.Items), err)
	}
	for i, n := range []float64{counted(first, "created"), counted(second, "exists"), counted(again, "exists")} {
		if n != 1 {
			t.Errorf("controller %d counted %v", i, n)
		}
	}
}

func counted(c *Controller, result string) float64 {
	return testutil.ToFloat64(c.writer.Made.WithLabelValues(result))
}

// TestRequestedAgain: an API server that is away for a moment loses nothing.
func TestRequestedAgain(t *testing.T) {
	c := newCluster(ended("web", message(t, reportOf(drain.Clean))))
	c.answer = func(n int) error {
		if n < 3 {
			return errors.New("connection refused")
		}
		return nil
	}
	_, stop := run(t, c)
	for range 3 {
		c.next(t)
	}
	stop()
	if all, err := c.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 1 {
		t.Errorf("%+v %v", all, err)
	}
}

func TestWhichTerminations(t *testing.T) {
	good := message(t, reportOf(drain.Clean))
	old := reportOf(drain.Clean)
	old.Began = time.Now().Add(-time.Hour)
	at := func(d time.Duration, text string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{Message: text, FinishedAt: metav1.NewTime(time.Now().Add(d))}
	}
	for _, c := range []struct {
		name   string
		change func(*corev1.PodStatus)
		want   int
	}{
		{"native sidecar", func(s *corev1.PodStatus) { s.InitContainerStatuses[0].State.Terminated = at(0, good) }, 1},
		{"classic sidecar, or lastcall run", func(s *corev1.PodStatus) { s.ContainerStatuses[0].State.Terminated = at(0, good) }, 1},
		{"restarted", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].RestartCount, s.ContainerStatuses[0].LastTerminationState.Terminated = 1, at(0, good)
		}, 1},
		{"restarted and ended", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].RestartCount, s.ContainerStatuses[0].LastTerminationState.Terminated = 1, at(-time.Minute, good)
			s.ContainerStatuses[0].State.Terminated = at(0, good)
		}, 2},
		{"an hour old", func(s *corev1.PodStatus) { s.ContainerStatuses[0].State.Terminated = at(-time.Hour, good) }, 0},
		{"old, from a runtime without a time", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State.Terminated = &corev1.ContainerStateTerminated{Message: message(t, old)}
		}, 0},
		{"cancelled", func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State.Terminated = at(0, message(t, reportOf(drain.Resumed)))
		}, 0},
		{"an app's own words", func(s *corev1.PodStatus) { s.ContainerStatuses[0].State.Terminated = at(0, "panic: {") }, 0},
		{"a verdict alone", func(s *corev1.PodStatus) { s.ContainerStatuses[0].State.Terminated = at(0, `{"verdict":"clean"}`) }, 0},
		{"a report cut off", func(s *corev1.PodStatus) { s.ContainerStatuses[0].State.Terminated = at(0, good[:len(good)-5]) }, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := running("web")
			c.change(&pod.Status)
			trimmed, err := Trim(pod)
			if err != nil {
				t.Fatal(err)
			}
			got := eventsOf(trimmed.(*corev1.Pod), time.Now())
			names := map[string]bool{}
			for _, e := range got {
				names[e.Name] = true
			}
			if len(got) != c.want || len(names) != c.want {
				t.Errorf("%d events of %d names, want %d", len(got), len(names), c.want)
			}
		})
	}
}

// TestSameEndSameName: the end of a container is in its state first, and in its last state after its restart.
func TestSameEndSameName(t *testing.T) {
	end := &corev1.ContainerStateTerminated{Message: message(t, reportOf(drain.Clean)), FinishedAt: metav1.Now()}
	before, after := running("web"), running("web")
	before.Status.ContainerStatuses[0].State.Terminated = end
	after.Status.ContainerStatuses[0].LastTerminationState.Terminated, after.Status.ContainerStatuses[0].RestartCount = end, 1
	a, b := eventsOf(before, time.Now()), eventsOf(after, time.Now())
	if len(a) != 1 || len(b) != 1 || a[0].Name != b[0].Name {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestTrimKeepsNoMore(t *testing.T) {
	pod := ended("web", message(t, reportOf(drain.Clean)))
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	pod.Annotations = map[string]string{"large": strings.Repeat("x", 1000)}
	trimmed, _ := Trim(pod)
	got := trimmed.(*corev1.Pod)
	if len(got.Spec.Containers)+len(got.Annotations)+len(got.Status.ContainerStatuses) > 0 || len(got.Status.InitContainerStatuses) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestDescribe(t *testing.T) {
	cut := reportOf(drain.Cut)
	cut.Phases = append(cut.Phases, drain.Span{Phase: drain.LastCall, Took: drain.Millis(time.Second)})
	cut.Late, cut.Raced, cut.LeftOut = 3, 2, 7
	for range 4 {
		cut.Open = append(cut.Open, drain.Conversation{Peer: "[fd00::7]:1", Protocol: "tcp", Ending: "fin"})
	}
	cut.Faults = []string{"one", "two"}
	hostile := reportOf(drain.Clean)
	hostile.HeldBy[0].Request = "GET /\n\x1b[31m" + strings.Repeat("é", 600)
	for _, c := range []struct {
		report drain.Report
		reason string
		want   string // part of the message
	}{
		{cut, "DrainCut", "1.0s last call; cut a tcp connection from fd00::7 (fin) and a tcp connection from fd00::7 (fin) and a tcp connection from fd00::7 (fin) and 8 more; 3 connections and requests arrived after the drain began; 2 requests arrived as their idle connections were being closed; one (and 1 more faults)"},
		{hostile, "Drained", `GET /\n\x1b[31mé`},
		{drain.Report{Verdict: drain.Crashed}, "DrainCrashed", "drained in 0.0s; the proxy ended by itself before it was stopped"},
		{drain.Report{Verdict: drain.Ended, Duration: drain.Millis(5 * time.Second)}, "DrainFixed", "drained in 5.0s; ended by terminationDrainDuration"},
		{drain.Report{Verdict: drain.Quit}, "DrainSkipped", "/quitquitquit"},
		{drain.Report{Verdict: drain.Cut}, "DrainCut", "the cut requests are unknown"},
	} {
		c.report.Trigger, c.report.Began = "SIGTERM", time.Now()
		all := eventsOf(ended("web", message(t, c.report)), time.Now())
		if len(all) != 1 {
			t.Fatalf("%d events of %+v", len(all), c.report)
		}
		reason, text := all[0].Reason, all[0].Message
		if reason != c.reason || !strings.Contains(text, c.want) || len(text) > 1024 || strings.ContainsAny(text, "\n\x1b") {
			t.Errorf("%s: %q, want %s: %q", reason, text, c.reason, c.want)
		}
	}
}
