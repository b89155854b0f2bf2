//go:build e2e

package gateways

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lastcall-dev/lastcall/lab/e2e/nodetest"
)

// restart replaces the pods of gateways under load, one at a time in each, all gateways side by side. It returns what each
// one's clients lost.
func restart(t *testing.T, gateways map[*gateway]string) map[*gateway]result {
	t.Helper()
	for g := range gateways {
		g.scale(t, 2)
	}
	out := map[*gateway]result{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for g, service := range gateways {
		all.Go(func() {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			b := balance(ctx, t, g.Name, service, *lag)
			loaded := make(chan result, 1)
			go func() { loaded <- load(ctx, b, *rate) }()
			for range *restarts {
				if err := g.replace(ctx, t, &all); err != nil {
					t.Errorf("%s: %v", g.form, err)
					break
				}
			}
			stop()
			r := <-loaded
			mu.Lock()
			out[g] = r
			mu.Unlock()
			t.Logf("%s, %d restarts at %d requests/s, endpoints %v late: %v", g.form, *restarts, *rate, *lag, r)
		})
	}
	all.Wait()
	return out
}

// replace deletes the oldest pod and waits until another one is ready. The old one may still be ending then, which all
// waits for.
func (g *gateway) replace(ctx context.Context, t *testing.T, all *sync.WaitGroup) error {
	before, err := g.ready(ctx)
	if err != nil || len(before) == 0 {
		return fmt.Errorf("%d pods of %s are ready: %w", len(before), g.deployment, err)
	}
	oldest := before[0]
	for _, p := range before {
		if p.CreationTimestamp.Before(&oldest.CreationTimestamp) {
			oldest = p
		}
	}
	if err := client.CoreV1().Pods(g.Name).Delete(ctx, oldest.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	deleted := time.Now()
	all.Go(func() {
		at, report := gone(ctx, oldest)
		t.Logf("%s: pod %s was deleted at %s, gone after %v: %s", g.form, oldest.Status.PodIP, deleted.Format("15:04:05.000"), at.Sub(deleted).Round(time.Millisecond), report)
	})
	return nodetest.Await(patience, "replaced "+oldest.Name, func() error {
		now, err := g.ready(ctx)
		if err == nil && len(now) < len(before) {
			err = fmt.Errorf("%d of %d pods are ready", len(now), len(before))
		}
		return err
	})
}
