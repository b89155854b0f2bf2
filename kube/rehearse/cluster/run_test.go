package cluster

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

func (c *cluster) options() Options {
	w, err := workload.Parse(namespace, "deploy/web")
	if err != nil {
		c.t.Fatal(err)
	}
	r, err := load.ParseRequest("GET /")
	if err != nil {
		c.t.Fatal(err)
	}
	return Options{Workload: w, URL: c.url, Options: load.Options{Requests: []load.Request{r}, Rate: 40}, Limit: 30 * time.Second,
		Confirm: func([]string) error { return nil }}
}

// A rollout whose pods cut requests loses them after SIGTERM; one whose pods finish them loses none.
func TestRestart(t *testing.T) {
	for _, isLossy := range []bool{true, false} {
		t.Run(map[bool]string{true: "lossy", false: "clean"}[isLossy], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, isLossy, nil)
			res, err := Run(t.Context(), c.clients(), c.options())
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
			wants := []string{"Pods of deployment shop/web end under load.", "2 × exit 0"}
			if isLossy {
				wants = append(wants, "no response after SIGTERM", "the likeliest first: old-")
			}
			for _, want := range wants {
				if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			pods := row.Runs[0].Pods
			if len(pods) != 2 {
				t.Errorf("the ends of %d pods", len(pods))
			}
			for _, p := range pods {
				if p.DeletedMS < 0 || p.TermMS != p.DeletedMS || p.EndedMS < p.TermMS || p.GoneMS < p.EndedMS || p.EndedBy != "exit 0" {
					t.Errorf("pod %+v", p)
				}
			}
		})
	}
}

// A pod whose one container is lastcall run has no app with a hook.
func TestNoHook(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, nil)
	p := aPod("old-1")
	p.Spec.Containers[0].Command = []string{"lastcall", "run", "--", "app"}
	if _, err := c.set.CoreV1().Pods(namespace).Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := inspect(t.Context(), c.clients(), c.options().Workload)
	if err != nil || got.preStop != "no preStop hook" || got.hook.Kind != podend.NoHook {
		t.Errorf("%+v, %v", got, err)
	}
}

// An interrupted rehearsal ends with the cause.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false, nil)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	interrupted := errors.New("interrupted")
	c.set.PrependReactor("patch", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		stop(interrupted)
		return false, nil, nil
	})
	if _, err := Run(ctx, c.clients(), c.options()); !errors.Is(err, interrupted) {
		t.Errorf("got %v", err)
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
		{"kube-system", "is in namespace kube-system, which is Kubernetes' own", nil, func(o *Options) { o.Workload.Namespace = "kube-system" }},
		{"url", "must be http://HOST[:PORT][/PATH]", nil, func(o *Options) { o.URL = &url.URL{Scheme: "ftp", Host: "x"} }},
		{"dead", "failed before any disruption", nil, func(o *Options) { o.URL = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} }},
		{"no workload", "read deployment/other", nil, func(o *Options) { o.Workload.Name = "other" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, false, tt.deployment)
			o := c.options()
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

// An error of Confirm ends the rehearsal after its plan was shown, and nothing changes.
func TestDeclined(t *testing.T) {
	c := newCluster(t, false, nil)
	o, declined := c.options(), errors.New("no")
	var plan []string
	o.Confirm = func(lines []string) error {
		plan = lines
		return declined
	}
	if _, err := Run(t.Context(), c.clients(), o); !errors.Is(err, declined) || len(plan) == 0 || c.patched.Load() > 0 {
		t.Errorf("error %v, plan %q, changes %d", err, plan, c.patched.Load())
	}
}
