package cluster

import (
	"bytes"
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

func (c *cluster) options(how How) Options {
	w, err := workload.Parse(namespace, "deploy/web")
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := load.ParseRequest("GET /")
	if err != nil {
		c.t.Fatal(err)
	}
	return Options{Workload: w, How: how, Replicas: 1, URL: c.url, Requests: []load.Request{r}, Rate: 40, Limit: 30 * time.Second,
		Confirm: func([]string) (bool, error) { return true, nil }}
}

// A rollout whose pods cut requests loses them after SIGTERM; one whose pods finish them loses none.
func TestRestart(t *testing.T) {
	for _, isLossy := range []bool{true, false} {
		t.Run(map[bool]string{true: "lossy", false: "clean"}[isLossy], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, isLossy, nil)
			res, err := Run(t.Context(), c.clients(), c.options(Restart))
			if err != nil {
				t.Fatal(err)
			}
			row := res.Rows[0]
			if res.OK == isLossy || (row.Lost > 0) != isLossy || row.Faults > 0 || row.Requests < 100 {
				t.Errorf("ok %v: lost %d, faults %d of %d: %+v", res.OK, row.Lost, row.Faults, row.Requests, row.Losses)
			}
			var text bytes.Buffer
			if err := res.WriteTable(&text, console.Style{}); err != nil {
				t.Fatal(err)
			}
			wants := []string{"Pods of deployment shop/web end under load.", "PodDisruptionBudget strict allows no disruption now", "2 × exit 0"}
			if isLossy {
				wants = append(wants, "no response after SIGTERM", "the likeliest first: old-", "RequestsLost (lastcall-observer): 2 reset")
			} else {
				wants = append(wants, "no Events of lastcall's observer")
			}
			for _, want := range wants {
				if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			var olds, news int
			for _, p := range row.Runs[0].Pods {
				switch {
				case p.IsNew && p.CreatedMS >= 0 && p.ReadyMS >= p.CreatedMS && p.ServingMS >= 0 && p.DeletedMS < 0:
					news++
				case !p.IsNew && p.DeletedMS >= 0 && p.UnreadyMS >= 0 && p.TermMS == p.DeletedMS && p.RemovedMS >= p.UnreadyMS && p.EndedMS >= p.TermMS && p.GoneMS >= p.EndedMS && p.EndedBy == "exit 0":
					olds++
				default:
					t.Errorf("pod %+v", p)
				}
			}
			if olds != 2 || news != 2 {
				t.Errorf("%d old and %d new pods", olds, news)
			}
		})
	}
}

// The number of replicas is restored, also when the rehearsal is interrupted; what was seen is reported.
func TestScaleInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o := c.options(Scale)
	o.Note = func(text string) {
		if text == "scaled to 1" {
			stop()
		}
	}
	res, err := Run(ctx, c.clients(), o)
	if err != nil {
		t.Fatal(err)
	}
	if res.OK || !strings.Contains(strings.Join(res.Notes, " "), "interrupted") {
		t.Errorf("ok %v, notes %q", res.OK, res.Notes)
	}
	d, err := c.set.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 2 || c.patched.Load() != 2 {
		t.Errorf("%d replicas after %d patches: %v", *d.Spec.Replicas, c.patched.Load(), err)
	}
}

// What must not be disrupted is refused, and nothing changes.
func TestRefused(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		deployment func(*appsv1.Deployment)
		options    func(*Options)
	}{
		{"paused", "is paused: kubectl rollout resume", func(d *appsv1.Deployment) { d.Spec.Paused = true }, nil},
		{"in progress", "a rollout of deployment/web is in progress", func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }, nil},
		{"kube-system", "is in namespace kube-system, which is protected", nil, func(o *Options) { o.Workload.Namespace = "kube-system" }},
		{"protected", "is in namespace shop, which is protected", nil, func(o *Options) { o.Protect = []string{"shop"} }},
		{"same number", "--scale is 2, and deployment/web has 2 replicas", nil, func(o *Options) { o.How, o.Replicas = Scale, 2 }},
		{"url", "must be http://HOST[:PORT][/PATH]", nil, func(o *Options) { o.URL = &url.URL{Scheme: "ftp", Host: "x"} }},
		{"dead", "failed before any disruption", nil, func(o *Options) { o.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} }},
		{"declined", "nothing was changed", nil, func(o *Options) { o.Confirm = func([]string) (bool, error) { return false, nil } }},
		{"no workload", "read deployment/other", nil, func(o *Options) { o.Workload.Name = "other" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, false, tt.deployment)
			o := c.options(Restart)
			if tt.options != nil {
				tt.options(&o)
			}
			if _, err := Run(t.Context(), c.clients(), o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if c.patched.Load() > 0 {
				t.Error("the deployment was changed")
			}
		})
	}
}

// A loss is attributed to the pods that were ending, and its phase is that of the closest moment.
func TestBlame(t *testing.T) {
	zero := time.Now()
	at := func(s float64) time.Time { return zero.Add(time.Duration(s * float64(time.Second))) }
	dying := func(name string, deleted, ended, gone float64, code int32) course {
		p := pod(name)
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(at(ended))}}
		return course{pod: p, deleted: at(deleted), ended: at(ended), gone: at(gone)}
	}
	r := &run{began: zero}
	ofHook := func(h *corev1.LifecycleHandler) {
		p := pod("p")
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: h}
		r.target.ending = termination.Of(p, termination.Options{})
	}
	first, second, killed := dying("first", 1, 10, 11, 0), dying("second", 8.1, 14, 14, 0), dying("killed", 20, 40, 41, sigkilled)
	all := []course{first, second, killed}
	sleep := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}
	for _, tt := range []struct {
		name  string
		hook  *corev1.LifecycleHandler
		why   load.Reason
		began float64
		last  float64
		phase outcome.Phase
		pods  string
	}{
		{"before", nil, load.Dropped, -2, -1, outcome.Serving, ""},
		{"no pod ends", nil, load.Dropped, 0, 0.5, outcome.Between, ""},
		{"in the hook", sleep, load.Dropped, 0, 2, outcome.InHook, "first"},
		{"after the hook", sleep, load.Dropped, 0, 5, outcome.Terminating, "first"},
		{"at SIGTERM, before another's deletion", &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 7}}, load.Dropped, 0, 8.01, outcome.Terminating, "first second"},
		{"two pods", nil, load.Dropped, 7, 8.1, outcome.Terminating, "second first"},
		{"unknown hook", &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/x"}}}, load.Dropped, 0, 5, outcome.Ending, "first"},
		{"refused after the end", nil, load.Refused, 10.2, 12.2, outcome.Gone, "first second"},
		{"SIGKILL", nil, load.Dropped, 30, 40.1, outcome.Killed, "killed"},
		{"long after", nil, load.Refused, 50, 50, outcome.Between, ""},
	} {
		ofHook(tt.hook)
		phase, pods := r.blame(all, load.Sent{Reason: tt.why, Outcome: traffic.Outcome{Began: at(tt.began), Last: at(tt.last)}})
		if phase != tt.phase || strings.Join(pods, " ") != tt.pods {
			t.Errorf("%s: got %s, pods %q", tt.name, phase, pods)
		}
		if r.fix(all, tt.why, phase) == "" {
			t.Errorf("%s: no advice", tt.name)
		}
	}
}
