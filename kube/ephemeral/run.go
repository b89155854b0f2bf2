// Package ephemeral observes how the pods of a workload end, without an installation: it adds an ephemeral container
// with lastcall to each of them, which watches the kernel's table of sockets from within the pod's network namespace
// (lastcall observe --pod), and reads its log.
//
// The container has no capability and no root, so that it starts in namespaces with the pod security level
// "restricted". It touches no packet and no process. Kubernetes cannot remove an ephemeral container: it ends with its
// pod, or by itself after Options.Limit.
//
// The kubelet sends SIGTERM to all containers of a pod at once, and the observer, which is one of them, takes it as the
// beginning of the termination. At the end of the grace period it is killed like the others; a moment before, it writes
// how many requests are in flight.
package ephemeral

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/kube/advice"
	"github.com/lastcall-dev/lastcall/kube/workload"
)

// Limits of one observation.
const (
	maxPods  = 200 // pods of a workload; of a larger one, the first are observed
	starting = 10  // pods that get their observer at the same time
)

// Options of an observation.
type Options struct {
	Image  string        // of lastcall
	Limit  time.Duration // after which an observer ends by itself
	Rounds int           // how many times the pods are observed to their end, at least 1
	// Restart, if set, is called when the observers of a round watch, before a rollout is triggered: an error prevents it.
	Restart func(round, pods int) error
	Report  Report
}

// Report receives the events. It is safe for concurrent use.
type Report interface {
	Ended(advice.Termination)        // a pod
	Missed(pod string, err error)    // the pod is not observed
	Note(format string, args ...any) // a remark for people
}

// run is one observation.
type run struct {
	Options
	clients  workload.Clients
	workload *workload.Workload
	seen     *sightings
}

// Run observes the pods of a workload until they have ended, or ctx ends. left are the pods whose observers still run
// then: they end with their pods, or after Options.Limit.
func Run(ctx context.Context, c workload.Clients, w *workload.Workload, o Options) (left []string, err error) {
	s, err := w.Read(ctx, c)
	if err != nil {
		return nil, err
	}
	if o.Restart != nil {
		if err := s.CanRestart(w); err != nil {
			return nil, err
		}
	}
	seen := &sightings{all: map[types.UID]*sighting{}}
	end, err := w.Follow(ctx, c, seen.set)
	if err != nil {
		return nil, err
	}
	defer end()
	r := &run{Options: o, clients: c, workload: w, seen: seen}
	for round := range o.Rounds {
		if o.Restart != nil || round > 0 {
			if err := r.settle(ctx); err != nil {
				return nil, err
			}
		}
		if left, err = r.round(ctx, round); err != nil || len(left) > 0 {
			return left, err
		}
	}
	return nil, nil
}

// settle waits until no rollout is in progress: its terminations would be observed in part, or counted to the next.
func (r *run) settle(ctx context.Context) error {
	for announced := ""; ; {
		s, err := r.workload.Read(ctx, r.clients)
		if err != nil || s.Settled() {
			return err
		}
		what := fmt.Sprintf("the rollout of %s to complete: %d of %d replicas available", r.workload, s.Available, s.Wanted)
		if what != announced {
			r.Report.Note("waiting for %s", what)
			announced = what
		}
		if !pause(ctx, retryAfter) {
			return fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// round observes the pods that run now, to their end.
func (r *run) round(ctx context.Context, number int) (left []string, err error) {
	pods, err := r.workload.Pods(ctx, r.clients, maxPods+1)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s in namespace %s has no running pod", r.workload, r.workload.Namespace)
	}
	if len(pods) > maxPods {
		r.Report.Missed(pods[maxPods].Name, fmt.Errorf("it and others beyond the first %d are left out", maxPods))
		pods = pods[:maxPods]
	}
	all, why := r.startAll(ctx, pods)
	if len(all) == 0 {
		return nil, fmt.Errorf("no pod of %s can be observed: %w", r.workload, why)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ending sync.WaitGroup
	var mu sync.Mutex // guards left
	for _, p := range all {
		ending.Go(func() {
			switch t := p.end(ctx); {
			case t != nil:
				r.Report.Ended(*t)
			case ctx.Err() == nil:
				r.Report.Missed(p.pod.Name, fmt.Errorf("its observer has ended before the pod (limit %v)", r.Limit))
			default:
				mu.Lock()
				defer mu.Unlock()
				left = append(left, p.pod.Name)
			}
		})
	}
	if r.Restart != nil {
		if err = r.Restart(number, len(all)); err == nil {
			err = r.workload.Restart(ctx, r.clients, time.Now())
		}
	}
	if err != nil {
		stop()
	}
	ending.Wait()
	slices.Sort(left)
	return left, err
}

// startAll adds observers, some at a time, and returns those that watch. why is an error of one that does not.
func (r *run) startAll(ctx context.Context, pods []corev1.Pod) (all []*observed, why error) {
	var mu sync.Mutex // guards the results
	var adding errgroup.Group
	adding.SetLimit(starting)
	for i := range pods {
		adding.Go(func() error {
			p := &observed{run: r, pod: &pods[i]}
			err := p.start(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				all = append(all, p)
				return nil
			}
			if why = err; ctx.Err() == nil {
				r.Report.Missed(p.pod.Name, err)
			}
			return nil
		})
	}
	_ = adding.Wait() // why has the error
	return all, why
}

// sighting is the last state of a pod that the API server has sent.
type sighting struct {
	pod     *corev1.Pod
	isGone  bool          // deleted; pod is its last state
	changed chan struct{} // closed at the next change
}

// sightings are the states of the workload's pods, by UID.
type sightings struct {
	mu  sync.Mutex
	all map[types.UID]*sighting
}

func (s *sightings) set(p *corev1.Pod, isGone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.all[p.UID]; was != nil {
		close(was.changed)
	}
	s.all[p.UID] = &sighting{pod: p, isGone: isGone, changed: make(chan struct{})}
}

// of is the last sighting of a pod, which is p itself before the first.
func (s *sightings) of(p *corev1.Pod) *sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[p.UID] == nil {
		s.all[p.UID] = &sighting{pod: p, changed: make(chan struct{})}
	}
	return s.all[p.UID]
}

// await waits until done reports true for a pod, or the pod is gone, and returns the last sighting. It returns early
// when ctx ends.
func (s *sightings) await(ctx context.Context, p *corev1.Pod, done func(*corev1.Pod) bool) *sighting {
	for {
		now := s.of(p)
		if now.isGone || done(now.pod) {
			return now
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return now
		}
	}
}
