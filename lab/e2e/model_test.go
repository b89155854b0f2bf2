//go:build e2e && model

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/model"
	"github.com/lastcall-dev/lastcall/kube/termination"
)

// modelTakes are the requests of TestModel, in turn; seconds.
var modelTakes = []float64{0.05, 0.05, 0.05, 1, 3}

// modelStartup is initialDelaySeconds of the pods' startup probe: a start that does not depend on the machine.
const modelStartup = 3

// modelRate is in requests per second, of each setting.
const modelRate = 60

// modelSettings are rollouts. Grace 0 is 30 s.
var modelSettings = []struct {
	way                                 string
	replicas, surge, unavailable, ready int
	sleep, grace                        int
	lastcall                            bool
	app                                 termination.Reaction
}{
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

// TestModel compares the model with rollouts of this node under load: losses are within a factor of 1.5. How long it takes
// depends on the machine's other work, and is printed. The start of a pod is an input of the model: that of the rollout's own pods, which depends on the
// machine and on how many start at once.
//
//	make e2e ARGS="-tags e2e,model -run TestModel -parallel 4"
func TestModel(t *testing.T) {
	rows := make([]string, len(modelSettings))
	t.Run("settings", func(t *testing.T) {
		for i, s := range modelSettings {
			t.Run(fmt.Sprintf("%d %s", s.replicas, s.way), func(t *testing.T) {
				t.Parallel()
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
				took, gone, r := n.rollOut(n.gateway("web"))
				start := n.meanStart()
				n.Kubectl("delete", "deployment", "web", "--wait=false")
				predicted := predict(t, termination.Of(pod, termination.Options{App: s.app}), model.Rollout{
					Pods: s.replicas, MaxSurge: s.surge, MaxUnavailable: s.unavailable, Start: model.Uniform(start, start), MinReady: time.Duration(s.ready) * time.Second})

				lost := float64(r.failed())
				rows[i] = fmt.Sprintf("| %d | %d | %d | %d s | %s | %.1f s | %.1f s | %.1f s | %.1f s | %.0f | %.0f |", s.replicas, s.surge, s.unavailable, s.ready, s.way,
					predicted.Took.Seconds(), took.Seconds(), predicted.Gone.Seconds(), gone.Seconds(), predicted.Lost(), lost)
				t.Logf("it took %v, predicted %v; a start takes %v", took, predicted.Took, start)
				if lost > predicted.Lost()*1.5+1 || lost < predicted.Lost()/1.5-1 {
					t.Errorf("lost %v, predicted %.1f", r, predicted.Lost())
				}
			})
		}
	})
	t.Logf("\n| pods | surge | unavailable | minReady | how they end | new, predicted | measured | old gone, predicted | measured | lost, predicted | measured |\n|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|\n%s", strings.Join(rows, "\n"))
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
		mean.Took, mean.Gone = r.Took, max(mean.Gone, r.Gone)
		mean.Cut, mean.Failed = mean.Cut+r.Cut/times, mean.Failed+r.Failed/times
	}
	return mean
}

// meanStart is how long the pods took from their creation until they were ready, on average; the API server's times are whole
// seconds.
func (n *namespace) meanStart() (mean time.Duration) {
	n.T.Helper()
	all := n.pods("web")
	for _, p := range all {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				mean += c.LastTransitionTime.Sub(p.CreationTimestamp.Time) / time.Duration(len(all))
			}
		}
	}
	return mean
}

// rollOut restarts the deployment under load. It returns when all pods were new, when the last old one was gone, and what
// became of the load.
func (n *namespace) rollOut(url string) (took, gone time.Duration, r *result) {
	n.T.Helper()
	old := map[string]bool{}
	for _, p := range n.pods("web") {
		old[p.Name] = true
	}
	ctx, stop := context.WithCancel(n.T.Context())
	defer stop()
	loaded := make(chan *result)
	c := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	go func() {
		loaded <- loadEach(ctx, modelRate, func(i int) string {
			return ask(c, fmt.Sprintf("%s/delay/%g", url, modelTakes[i%len(modelTakes)]))
		})
	}()
	time.Sleep(4 * time.Second) // the longest request is in flight
	began := time.Now()
	n.Kubectl("rollout", "restart", "deployment", "web")
	n.Available("web")
	took = time.Since(began)
	n.Until("lost its old pods", func() error {
		list, err := client.CoreV1().Pods(n.Name).List(n.T.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if old[p.Name] {
				return fmt.Errorf("%s exists", p.Name)
			}
		}
		return nil
	})
	gone = time.Since(began)
	stop()
	return took, gone, <-loaded
}
