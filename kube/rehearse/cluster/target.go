package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/kube/workload"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
)

// maxPods is how many pods a workload may have.
const maxPods = 500

// target is the workload as it is before the rollout.
type target struct {
	state   workload.State
	pods    int
	ending  *termination.Termination // of its pods
	hook    course.Hook              // of the first of their own containers
	preStop string                   // the same in words
	notes   []string
}

// inspect reads the workload and refuses one that must not be restarted now.
func inspect(ctx context.Context, clients workload.Clients, w *workload.Workload) (*target, error) {
	state, err := w.Read(ctx, clients)
	if err != nil {
		return nil, err
	}
	pods, err := w.Pods(ctx, clients, maxPods+1)
	if err != nil {
		return nil, err
	}
	if err := state.CanRestart(w); err != nil {
		return nil, err
	}
	switch {
	case !state.Settled():
		return nil, fmt.Errorf("a rollout of %s is in progress, or its pods are not available (%d of %d): "+
			"wait until it is complete", w, state.Available, state.Wanted)
	case len(pods) == 0:
		return nil, fmt.Errorf("%s has no running pod", w)
	case len(pods) > maxPods:
		return nil, fmt.Errorf("%s has more than %d pods: rehearse a smaller workload with the same pods", w, maxPods)
	}
	// The pods themselves have the additions of the meshes' webhooks.
	t := &target{
		state: state, pods: len(pods), ending: termination.Of(&pods[0], termination.Options{}),
		preStop: "no preStop hook", hook: course.Hook{Kind: course.NoHook, IsKnown: true},
	}
	for _, c := range slices.Backward(t.ending.Containers) {
		if c.Role == course.App {
			t.hook = c.Hook
		}
	}
	if t.hook.Kind != course.NoHook {
		t.preStop = "preStop " + t.hook.Text
	}
	if strings.HasPrefix(state.Update, "Recreate") {
		t.notes = append(t.notes,
			"the strategy Recreate ends all pods before it starts new ones: requests in between are lost")
	}
	return t, nil
}

// plan is the rehearsal's next action.
func (t *target) plan(o *Options, l *load.Load) []string {
	var kinds []string
	for _, k := range o.Requests {
		kinds = append(kinds, k.String())
	}
	w := o.Workload
	return append([]string{
		fmt.Sprintf("send %s to %s from this machine, %.3g requests a second, until all is complete",
			strings.Join(kinds, ", "), o.URL.Redacted(), l.Rate),
		fmt.Sprintf("restart %s in namespace %s as kubectl rollout restart does (%s): %s of it will be replaced",
			w, w.Namespace, t.state.Update, terminal.Count(t.pods, "pod")),
		fmt.Sprintf("each pod has %v to end (%s)", t.ending.Grace, t.preStop),
	}, t.notes...)
}
