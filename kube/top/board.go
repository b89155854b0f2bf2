package top

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/live"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/kube/check"
)

const (
	// MostPods limits the pods of a board.
	MostPods = 50

	interval = time.Second      // between two lists of the pods
	again    = 2 * time.Second  // until an agent that did not answer is tried again
	keepGone = 30 * time.Second // how long a pod that has gone stays on the board
)

// Pod is one pod on a board.
type Pod struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Node      string      `json:"node,omitempty"`
	Status    string      `json:"status"`            // of the pod: Pending, Running, Terminating, Succeeded, Failed, Gone
	State     *live.State `json:"state,omitempty"`   // the agent's latest
	Report    string      `json:"report,omitempty"`  // how its latest termination went
	Problem   string      `json:"problem,omitempty"` // why there is no state

	received time.Time // when State arrived
	gone     time.Time
	created  time.Time
}

// Board follows the pods of a target.
type Board struct {
	clients check.Clients
	target  Target
	timeout time.Duration
	follow  Follow

	following sync.WaitGroup
	looked    chan struct{} // closed when the pods have been listed once

	mu      sync.Mutex // guards what follows
	pods    map[types.UID]*Pod
	cut     bool // there are more pods
	problem error
}

// NewBoard returns a board without pods. timeout limits each look-up.
func NewBoard(clients check.Clients, target Target, timeout time.Duration, follow Follow) *Board {
	return &Board{clients: clients, target: target, timeout: timeout, follow: follow, looked: make(chan struct{}), pods: make(map[types.UID]*Pod)}
}

// Run follows the pods until ctx ends. It returns an error if the target does not exist.
func (b *Board) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer b.following.Wait()
	defer cancel()
	if err := b.look(ctx); err != nil {
		return err
	}
	close(b.looked)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		err := b.look(ctx)
		b.mu.Lock()
		b.problem = err
		b.mu.Unlock()
	}
}

// look lists the pods, and follows those that are new.
func (b *Board) look(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	selection, err := b.target.find(look, b.clients)
	if err != nil {
		return err
	}
	list, err := b.clients.Core.Pods(b.target.Namespace).List(look, selection)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cut = list.Continue != ""
	present := make(map[types.UID]bool)
	for i := range list.Items {
		p := &list.Items[i]
		present[p.UID] = true
		known := b.pods[p.UID]
		if known == nil {
			known = &Pod{Namespace: p.Namespace, Name: p.Name, created: p.CreationTimestamp.Time}
			b.pods[p.UID] = known
			b.following.Go(func() { b.keepFollowing(ctx, p, known) })
		}
		known.Node, known.Status = p.Spec.NodeName, statusOf(p)
		if text := reportOf(p); text != "" {
			known.Report = text
		}
	}
	for uid, p := range b.pods {
		switch {
		case present[uid]:
		case p.gone.IsZero():
			p.gone, p.Status = time.Now(), "Gone"
		case time.Since(p.gone) > keepGone || len(b.pods) > MostPods:
			delete(b.pods, uid)
		}
	}
	return nil
}

// keepFollowing follows a pod's agent until the pod has gone.
func (b *Board) keepFollowing(ctx context.Context, p *corev1.Pod, known *Pod) {
	for ctx.Err() == nil {
		err := b.follow(ctx, p, func(s live.State) {
			b.mu.Lock()
			defer b.mu.Unlock()
			known.State, known.Problem, known.received = &s, "", time.Now()
		})
		b.mu.Lock()
		isGone := !known.gone.IsZero()
		if known.Problem = err.Error(); known.State == nil || known.State.Phase != drain.Done.String() {
			known.State = nil
		}
		b.mu.Unlock()
		if isGone || errors.Is(err, errNoAgent) {
			return
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

// statusOf is a word for a pod.
func statusOf(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil {
		return "Terminating"
	}
	return string(p.Status.Phase)
}

// reportOf is the summary of the latest termination of a pod's agent, from the container's termination message.
func reportOf(p *corev1.Pod) string {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		end := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
		if s.Name != container || end == nil {
			continue
		}
		if report, ok := drain.ParseMessage(end.Message); ok {
			return report.Summary()
		}
	}
	return ""
}

// Snapshot is a copy of the pods, in the order of their names, the older of two first. problem is why the pods could not be
// listed; isAll is false if there are more than MostPods.
func (b *Board) Snapshot() (pods []Pod, isAll bool, problem error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for p := range maps.Values(b.pods) {
		pods = append(pods, *p)
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), a.created.Compare(b.created))
	})
	return pods, !b.cut, b.problem
}

// Settle waits until the pods have been listed, and then for atMost until each has a state, a problem or a report.
func (b *Board) Settle(ctx context.Context, atMost time.Duration) {
	select {
	case <-b.looked:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	_ = poll.Until(ctx, 20*time.Millisecond, func() bool {
		pods, _, _ := b.Snapshot()
		return !slices.ContainsFunc(pods, func(p Pod) bool { return p.State == nil && p.Problem == "" && p.Report == "" })
	})
}
