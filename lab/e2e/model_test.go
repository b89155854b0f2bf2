//go:build e2e && model

package e2e

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/kube/model"
	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// modelTakes are the requests of TestModel, in turn; seconds.
var modelTakes = []float64{0.05, 0.05, 0.05, 1, 3}

// modelStartup is initialDelaySeconds of the pods' startup probe: a start that does not depend on the machine.
const modelStartup = 3

// modelRate is in requests per second, of each setting.
const modelRate = 60

// modelSetting is a rollout. Grace 0 is 30 s.
type modelSetting struct {
	way                                 string
	replicas, surge, unavailable, ready int
	sleep, grace                        int
	lastcall                            bool
	app                                 termination.Reaction
}

func (s modelSetting) name() string { return fmt.Sprintf("%d %s", s.replicas, s.way) }

// modelCalibration is rolled out without and with lastcall before the settings.
var modelCalibration = modelSetting{way: "calibration", replicas: 4, surge: 1, app: termination.Exits}

var modelSettings = []modelSetting{
	{way: "exits", replicas: 2, surge: 1, app: termination.Exits},
	{way: "exits", replicas: 6, surge: 2, app: termination.Exits},
	{way: "exits", replicas: 12, surge: 3, unavailable: 3, app: termination.Exits},
	{way: "exits", replicas: 10, surge: 10, ready: 5, app: termination.Exits},
	{way: "sleep 1, exits", replicas: 4, surge: 1, sleep: 1, app: termination.Exits},
	{way: "sleep 5, exits", replicas: 4, surge: 1, unavailable: 1, sleep: 5, app: termination.Exits},
	{way: "sleep 10, exits", replicas: 3, unavailable: 1, sleep: 10, app: termination.Exits},
	{way: "finishes, grace 1", replicas: 4, unavailable: 1, grace: 1, app: termination.Finishes},
	{way: "sleep 2, finishes", replicas: 8, surge: 2, unavailable: 2, ready: 3, sleep: 2, app: termination.Finishes},
	{way: "sleep 3, finishes", replicas: 5, surge: 1, ready: 4, sleep: 3, app: termination.Finishes},
	{way: "lastcall, exits", replicas: 4, surge: 1, lastcall: true, app: termination.Exits},
	{way: "lastcall, exits", replicas: 12, surge: 3, lastcall: true, app: termination.Exits},
}

// modelWithin is in how many settings the predicted time must be within 10 % and the losses within a factor of 1.5: a busy
// machine delays single rollouts.
const modelWithin = 10

// TestModel compares the model with rollouts of this node under load. What the model is given in addition to the setting:
// how long the pods of the rollout took to start, which depends on the machine and on how many start at once, and how long
// the controllers took to react in another rollout, which is made first. What it predicts from the pods of that one as
// well is printed.
//
//	make e2e ARGS="-tags e2e,model -run TestModel -parallel 2"
func TestModel(t *testing.T) {
	calibrations := map[bool]course{}
	for _, injected := range []bool{false, true} {
		s := modelCalibration
		s.lastcall = injected
		t.Run(fmt.Sprint("calibration, lastcall ", injected), func(t *testing.T) {
			c, _ := s.rollOut(t)
			calibrations[injected] = c
			t.Logf("starts %v, the controllers react after %v", c.starts, c.reaction(t))
		})
		if t.Failed() {
			return
		}
	}
	rows := make([]string, len(modelSettings))
	var within atomic.Int32
	t.Run("settings", func(t *testing.T) {
		for i, s := range modelSettings {
			t.Run(s.name(), func(t *testing.T) {
				t.Parallel()
				c, plan := s.rollOut(t)
				calibration := calibrations[s.lastcall]
				o := model.Rollout{Pods: s.replicas, MaxSurge: s.surge, MaxUnavailable: s.unavailable, MinReady: time.Duration(s.ready) * time.Second,
					Start: model.Observed(c.starts), Reaction: calibration.reaction(t)}
				predicted := predict(t, plan, o)
				o.Start = model.Observed(calibration.starts)
				blind := predict(t, plan, o)

				off := predicted.Took.Seconds()/c.took.Seconds() - 1
				lost := float64(c.load.failed())
				rows[i] = fmt.Sprintf("| %d | %d | %d | %d s | %s | %.1f s | %.1f s | %+.0f %% | %.1f s | %.0f | %.0f |", s.replicas, s.surge, s.unavailable, s.ready, s.way,
					predicted.Took.Seconds(), c.took.Seconds(), 100*off, blind.Took.Seconds(), predicted.Lost(), lost)
				t.Logf("starts %v", c.starts)
				if math.Abs(off) <= 0.1 && lost <= predicted.Lost()*1.5+1 && lost >= predicted.Lost()/1.5-1 {
					within.Add(1)
				} else {
					t.Logf("took %v, predicted %v; lost %v, predicted %.1f", c.took, predicted.Took, c.load, predicted.Lost())
				}
			})
		}
	})
	t.Logf("\n| pods | surge | unavailable | minReady | how they end | new, predicted | measured | off | predicted from the calibration alone | lost, predicted | measured |\n|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|\n%s", strings.Join(rows, "\n"))
	if n := within.Load(); n < modelWithin {
		t.Errorf("time and losses are within 10 %% and a factor of 1.5 in %d settings, want %d", n, modelWithin)
	}
}

// rollOut makes a deployment and rolls it out under load. It also returns how its pods end.
func (s modelSetting) rollOut(t *testing.T) (course, *termination.Termination) {
	n := newNamespace(t, map[string]string{"lastcall.dev/inject": fmt.Sprint(s.lastcall)})
	onTerm := "exit"
	if s.app == termination.Finishes {
		onTerm = "drain"
	}
	more := fmt.Sprintf("        startupProbe: {httpGet: {path: /get, port: http}, initialDelaySeconds: %d, periodSeconds: 1}\n", modelStartup)
	if s.sleep > 0 {
		more += fmt.Sprintf("        lifecycle: {preStop: {sleep: {seconds: %d}}}\n", s.sleep)
	}
	a := app{name: "web", replicas: s.replicas, grace: s.grace, more: more, args: []string{"httpbin", "--listen", ":8080", "--on-term", onTerm}}
	strategy := fmt.Sprintf("  minReadySeconds: %d\n  strategy: {rollingUpdate: {maxSurge: %d, maxUnavailable: %d}}\n  replicas:", s.ready, s.surge, s.unavailable)
	n.Apply(strings.Replace(a.manifest(), "  replicas:", strategy, 1))
	n.Available("web")

	d, err := client.AppsV1().Deployments(n.Name).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Labels["lastcall.dev/inject"] = fmt.Sprint(s.lastcall)
	c := n.rollOut(n.gateway("web"))
	n.Kubectl("delete", "deployment", "web", "--wait=false")
	return c, termination.Of(pod, termination.Options{App: s.app})
}

// predict is the mean of many simulations.
func predict(t *testing.T, plan *termination.Termination, o model.Rollout) (mean model.Result) {
	t.Helper()
	var takes []time.Duration
	for _, s := range modelTakes {
		takes = append(takes, time.Duration(s*float64(time.Second)))
	}
	// One client: the gateway, which receives changes of the endpoints at once.
	o.Load = model.Load{Rate: modelRate, Durations: model.Observed(takes), Propagation: 200 * time.Millisecond, Clients: 1}
	const times = 50
	for o.Seed = range uint64(times) {
		r, err := o.Run(plan)
		if err != nil {
			t.Fatal(err)
		}
		mean.Took += r.Took / times
		mean.Cut, mean.Failed = mean.Cut+r.Cut/times, mean.Failed+r.Failed/times
	}
	return mean
}

// course is that of a rollout.
type course struct {
	took           time.Duration   // from the restart until all pods were new and available
	created, ready []time.Duration // of the new pods, from the restart on
	starts         []time.Duration // of them, from the creation until ready
	load           *result
}

// reaction is how long the controllers took from a pod's readiness until the next pod's creation.
func (c course) reaction(t *testing.T) time.Duration {
	t.Helper()
	d, ok := model.Reaction(c.created, c.ready)
	if !ok {
		t.Fatal("no pod was created after another was ready")
	}
	return d
}

// life is that of a pod as this machine learns of it.
type life struct{ created, ready time.Time }

// rollOut restarts the deployment under load, and returns when its old pods are gone.
func (n *namespace) rollOut(url string) (c course) {
	n.T.Helper()
	lives := map[types.UID]*life{}
	pods := client.CoreV1().Pods(n.Name)
	choose := func(o metav1.ListOptions) metav1.ListOptions { o.LabelSelector = "app=web"; return o }
	end, err := workload.Follow(n.T.Context(), client, pods, choose, &corev1.Pod{}, func(object any, _ bool) {
		p, isPod := object.(*corev1.Pod)
		if !isPod {
			return
		}
		l := lives[p.UID]
		if l == nil {
			l = &life{created: time.Now()}
			lives[p.UID] = l
		}
		if l.ready.IsZero() && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			l.ready = time.Now()
		}
	})
	if err != nil {
		n.T.Fatal(err)
	}
	defer end()
	old := n.pods("web")
	ctx, stop := context.WithCancel(n.T.Context())
	defer stop()
	loaded := make(chan *result)
	caller := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	go func() {
		loaded <- loadEach(ctx, modelRate, func(i int) string {
			return ask(caller, fmt.Sprintf("%s/delay/%g", url, modelTakes[i%len(modelTakes)]))
		})
	}()
	time.Sleep(4 * time.Second) // the longest request is in flight
	began := time.Now()
	restart := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"restarted":%q}}}}}`, began)
	if _, err := client.AppsV1().Deployments(n.Name).Patch(ctx, "web", types.StrategicMergePatchType, restart, metav1.PatchOptions{}); err != nil {
		n.T.Fatal(err)
	}
	n.Available("web")
	c.took = time.Since(began)
	for _, p := range old {
		n.gone(p)
	}
	stop()
	c.load = <-loaded
	end()
	for _, p := range old {
		delete(lives, p.UID)
	}
	for _, l := range lives {
		if l.ready.IsZero() {
			n.T.Fatal("a new pod was not seen to be ready")
		}
		c.created, c.ready, c.starts = append(c.created, l.created.Sub(began)), append(c.ready, l.ready.Sub(began)), append(c.starts, l.ready.Sub(l.created))
	}
	return c
}
