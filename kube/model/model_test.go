package model_test

import (
	"math"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/inject"
	"github.com/lastcall-dev/lastcall/kube/model"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

const sec = time.Second

// pod is a pod with a preStop sleep, with labels as NAME=VALUE.
func pod(sleep int64, labels ...string) *corev1.Pod {
	c := corev1.Container{Name: "web", Image: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}
	if sleep > 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: sleep}}}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}, Spec: corev1.PodSpec{Containers: []corev1.Container{c}}}
	for _, l := range labels {
		name, value, _ := strings.Cut(l, "=")
		p.Labels[name] = value
	}
	return p
}

// mix is the load of the rollout rehearsal (rehearsal/rollout/load.go): 0.25 s on average.
func mix() model.Durations {
	var all []time.Duration
	add := func(percent int, d time.Duration) {
		for range percent * 10 {
			all = append(all, d)
		}
	}
	add(75, 2*time.Millisecond)
	for i := range 140 {
		all = append(all, 50*time.Millisecond+time.Duration(i)*500*time.Millisecond/140)
	}
	add(5, sec)
	add(2, 2*sec)
	add(2, 3*sec)
	add(2, 5*sec)
	return model.Observed(all)
}

// TestMeasuredRollouts compares with rollouts of real processes (BENCHMARKS.md, "A rollout under load": 20,000 requests at
// 200/s over 20 replaced pods of 3 replicas, changes known 0 to 4 s late): losses within a factor of 1.5, the time that a
// pod stays within 10 %.
func TestMeasuredRollouts(t *testing.T) {
	classic := []string{"sidecar.istio.io/inject=true"}
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		app    termination.Reaction
		lost   float64 // measured, for 20 pods: the mean of two runs
		stayed time.Duration
	}{
		{"lastcall", pod(0, "lastcall.dev/inject=true"), termination.Exits, 0, 5850 * time.Millisecond},
		{"Istio's default", pod(0, classic...), termination.Finishes, 1722, 5010 * time.Millisecond},
		{"preStop sleep 5, Istio's default", sleepBoth(pod(5, classic...)), termination.Finishes, 0, 10010 * time.Millisecond},
		{"nothing", pod(0), termination.Exits, 310, 10 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plan := termination.Of(tt.pod, termination.Options{App: tt.app, Istio: inject.Classic})
			const pods = 400
			r, err := model.Rollout{Pods: pods, MaxSurge: 1, Start: model.Uniform(1, 1), Load: model.Load{Rate: 200.0 / 4 * pods, Durations: mix(), Propagation: 4 * sec}}.Run(plan)
			if err != nil {
				t.Fatal(err)
			}
			lost := r.Lost() / pods * 20
			t.Logf("20 pods lose %.0f, measured %.0f; a pod stays %v, measured %v", lost, tt.lost, r.Stayed, tt.stayed)
			if lost > tt.lost*1.5+1 || lost < tt.lost/1.5-1 {
				t.Errorf("%.0f lost, measured %.0f", lost, tt.lost)
			}
			if d := r.Stayed - tt.stayed; math.Abs(d.Seconds()) > 0.1*tt.stayed.Seconds()+0.02 {
				t.Errorf("a pod stays %v, measured %v", r.Stayed, tt.stayed)
			}
		})
	}
}

// sleepBoth gives the pod a classic proxy with the app's own hook.
func sleepBoth(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Image: "proxyv2", Lifecycle: p.Spec.Containers[0].Lifecycle})
	return p
}

// TestWaves: how long a rollout takes follows from surge and start; what exists in addition from the
// endings as well.
func TestWaves(t *testing.T) {
	plan := termination.Of(pod(5), termination.Options{})
	load := model.Load{Rate: 100, Durations: mix(), Propagation: 2 * sec}
	for _, tt := range []struct {
		surge, unavailable int
		took, gone         time.Duration
		peak               int
	}{
		{1, 0, 40 * sec, 45 * sec, 3}, // one after another: 10 × 4 s; two terminate while a third starts
		{5, 0, 8 * sec, 13 * sec, 10},
		{10, 0, 4 * sec, 9 * sec, 10},
		{0, 5, 8 * sec, 9 * sec, 10}, // the second half starts while the first still terminates
		{0, 10, 4 * sec, 5 * sec, 10},
	} {
		r, err := model.Rollout{Pods: 10, MaxSurge: tt.surge, MaxUnavailable: tt.unavailable, Start: model.Uniform(4*sec, 4*sec), Load: load}.Run(plan)
		if err != nil {
			t.Fatal(err)
		}
		if r.Took != tt.took || r.Gone != tt.gone || r.Peak != tt.peak {
			t.Errorf("surge %d, unavailable %d: took %v, gone %v, peak %d; want %v", tt.surge, tt.unavailable, r.Took, r.Gone, r.Peak, tt)
		}
	}
	if _, err := (model.Rollout{Pods: 10, Load: load}).Run(plan); err == nil {
		t.Error("no error for a rollout that cannot begin")
	}
}

// TestSteps: what a rollout takes from pods that start differently, minReadySeconds, and controllers that need time.
func TestSteps(t *testing.T) {
	plan := termination.Of(pod(0), termination.Options{})
	between := model.Uniform(2*sec, 6*sec)
	for _, tt := range []struct {
		name     string
		o        model.Rollout
		from, to time.Duration
	}{
		{"one after another", model.Rollout{Pods: 100, MaxSurge: 1, Start: between}, 370 * sec, 430 * sec},
		{"all at once: the slowest decides", model.Rollout{Pods: 100, MaxSurge: 100, Start: between}, 5900 * time.Millisecond, 6 * sec},
		{"in ten chains, none of which waits for the slowest of the others", model.Rollout{Pods: 100, MaxSurge: 10, Start: between}, 41 * sec, 48 * sec},
		{"the controllers react to the rollout and to each pod", model.Rollout{Pods: 10, MaxSurge: 1, Start: model.Uniform(sec, sec), Reaction: sec}, 21 * sec, 21 * sec},
		{"minReadySeconds, reckoned from a whole second", model.Rollout{Pods: 100, MaxSurge: 1, Start: model.Uniform(sec, sec), MinReady: 3 * sec}, 340 * sec, 360 * sec},
	} {
		tt.o.Load = model.Load{Rate: 1, Durations: mix(), Propagation: sec}
		r, err := tt.o.Run(plan)
		if err != nil {
			t.Fatal(err)
		}
		if r.Took < tt.from || r.Took > tt.to {
			t.Errorf("%s: took %v, want %v to %v", tt.name, r.Took, tt.from, tt.to)
		}
	}
}

// Rollouts of a node in docs/model.md, in which the number of pods that share the requests changes most.
func TestShared(t *testing.T) {
	plan := termination.Of(pod(0), termination.Options{App: termination.Exits})
	takes := model.Observed([]time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond, sec, 3 * sec})
	for _, tt := range []struct {
		pods, surge, unavailable int
		ready                    time.Duration
		measured                 float64
	}{
		{2, 1, 0, 0, 53},
		{6, 2, 0, 0, 48},
		{12, 3, 3, 0, 59},        // nine have the requests of twelve
		{10, 10, 0, 5 * sec, 29}, // 20 have the requests of ten; the mean of three rollouts
	} {
		lost := 0.0
		for seed := range uint64(50) {
			r, err := model.Rollout{Pods: tt.pods, MaxSurge: tt.surge, MaxUnavailable: tt.unavailable, MinReady: tt.ready, Start: model.Uniform(4*sec, 6*sec),
				Reaction: 140 * time.Millisecond, Load: model.Load{Rate: 60, Durations: takes}, Seed: seed}.Run(plan)
			if err != nil {
				t.Fatal(err)
			}
			lost += r.Lost() / 50
		}
		t.Logf("%d pods, surge %d, unavailable %d: lost %.1f, measured %.0f", tt.pods, tt.surge, tt.unavailable, lost, tt.measured)
		if lost > tt.measured*1.2 || lost < tt.measured/1.2 {
			t.Errorf("%d pods, surge %d, unavailable %d: lost %.1f, measured %.0f", tt.pods, tt.surge, tt.unavailable, lost, tt.measured)
		}
	}
}

// TestReaction: each creation after the rollout's first ones follows from the availability of one pod.
func TestReaction(t *testing.T) {
	created := []time.Duration{100, 100, 1200, 1310, 2200}
	if d, ok := model.Reaction(created, []time.Duration{1300, 1100, 2050, 2300, 3000}); d != 100 || !ok {
		t.Errorf("%v, %v", d, ok)
	}
	for _, available := range [][]time.Duration{nil, {3000}} {
		if d, ok := model.Reaction(created, available); ok {
			t.Errorf("%v from %v", d, available)
		}
	}
}

// TestDeterministic: the same seed, the same result; 10,000 pods are quick.
func TestDeterministic(t *testing.T) {
	plan := termination.Of(pod(0, "lastcall.dev/inject=true"), termination.Options{})
	o := model.Rollout{Pods: 10_000, MaxSurge: 2500, Start: model.Uniform(2*sec, 4*sec), Load: model.Load{Rate: 50_000, Durations: mix(), Propagation: 2 * sec}}
	a, err := o.Run(plan)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := o.Run(plan); a != b {
		t.Errorf("%+v and %+v", a, b)
	}
	if a.Lost() != 0 || a.Met == 0 {
		t.Errorf("lastcall: %+v", a)
	}
}

func TestDurations(t *testing.T) {
	d, err := model.Lognormal(100*time.Millisecond, sec, 0)
	if err != nil {
		t.Fatal(err)
	}
	for q, want := range map[float64]time.Duration{0.5: 100 * time.Millisecond, 0.99: sec} {
		if got := d.Quantile(q); math.Abs(float64(got-want)) > 0.02*float64(want) {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	d, err = model.ReadDurations(strings.NewReader("# a comment\n250ms\n\n1.5\n2s\n"))
	if err != nil || d.Count() != 3 || d.Longest() != 2*sec || d.Quantile(0.5) != 1500*time.Millisecond || d.Mean() != 1250*time.Millisecond {
		t.Errorf("%v, %v", d, err)
	}
	for _, text := range []string{"", "soon", "-1s"} {
		if _, err := model.ReadDurations(strings.NewReader(text)); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
	h, err := model.Histogram([]model.Bucket{{100 * time.Millisecond, 90}, {sec, 99}, {5 * sec, 100}})
	if err != nil || h.Quantile(0.9) != 100*time.Millisecond || h.Quantile(0.99) != sec || h.Longest() != 5*sec || h.Count() != 100 {
		t.Errorf("%v %v %v, %v", h.Quantile(0.9), h.Quantile(0.99), h.Longest(), err)
	}
	if _, err := model.Lognormal(sec, 100*time.Millisecond, 0); err == nil {
		t.Error("no error for a p99 below p50")
	}
}
