package model

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Rollout is how a Deployment replaces its pods.
type Rollout struct {
	Pods           int           // replicas, 1 to 100,000
	MaxSurge       int           // pods
	MaxUnavailable int           // pods; not 0 together with MaxSurge
	Start          Durations     // from a pod's creation until it is ready
	MinReady       time.Duration // minReadySeconds
	Reaction       time.Duration // of the controllers, from a pod's availability until the next pod's creation, for example
	Load           Load          // Rate is that of all pods together
	Seed           uint64
}

// Result is a simulated rollout.
type Result struct {
	Took     time.Duration // until all pods are new and available: what kubectl rollout status waits for
	Gone     time.Duration // until the last old pod has ended
	Requests float64       // sent until Gone
	Ending                 // of all old pods together; Stayed is the mean

	// Peak is the largest number of pods that existed in addition to the replicas, terminating ones included. Extra is the
	// capacity used in addition: pods × time.
	Peak  int
	Extra time.Duration
}

// Validate checks the numbers.
func (o Rollout) Validate() error {
	switch {
	case o.Pods < 1 || o.Pods > 100_000:
		return fmt.Errorf("%d pods: must be 1 to 100000", o.Pods)
	case o.MaxSurge < 0 || o.MaxUnavailable < 0:
		return errors.New("maxSurge and maxUnavailable must not be negative")
	case o.MaxSurge == 0 && o.MaxUnavailable == 0:
		return errors.New("maxSurge and maxUnavailable must not both be 0: no pod could be replaced")
	}
	return nil
}

// change is a moment at which the number of existing pods changes.
type change struct {
	at time.Duration
	by int
}

// level is the number of pods that share the requests, from a time on.
type level struct {
	from time.Duration
	pods int
}

// Reaction is the median time from a pod's availability to the creation that followed from it, where created and available
// are when that happened to the new pods of a rollout, which it sorts. False: no creation followed from an availability.
func Reaction(created, available []time.Duration) (time.Duration, bool) {
	slices.Sort(created)
	slices.Sort(available)
	for len(created) > 0 && (len(available) == 0 || created[0] < available[0]) { // at the rollout's beginning
		created = created[1:]
	}
	var all []time.Duration
	for i := range min(len(created), len(available)) {
		all = append(all, max(0, created[i]-available[i]))
	}
	if len(all) == 0 {
		return 0, false
	}
	return Observed(all).Quantile(0.5), true
}

// Run simulates the rollout as the Deployment's controller does it: when the rollout begins, and whenever a new pod becomes
// available, old pods are deleted as long as Pods - MaxUnavailable are available, and new ones are created up to
// Pods + MaxSurge, terminating ones not counted.
func (o Rollout) Run(t *termination.Termination) (Result, error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	if len(o.Start.sorted) == 0 {
		return Result{}, errors.New("missing how long pods take to start")
	}
	random := rand.New(rand.NewPCG(o.Seed, 2))
	starts := rand.New(rand.NewPCG(o.Seed, 3)) // of its own: pods that end differently start equally
	load := o.Load
	load.Rate /= float64(o.Pods)
	var out Result
	var changes []change
	var next events
	now, old, created, available := o.Reaction, o.Pods, 0, 0
	serving := []level{{math.MinInt64, o.Pods}}
	serve := func(by int) { serving = append(serving, level{now, serving[len(serving)-1].pods + by}) }
	// No client has learned of the deletion at 0, or of others at the same time.
	share := func(at time.Duration) float64 {
		after := sort.Search(len(serving), func(i int) bool { return serving[i].from >= now+min(at, 0) })
		return float64(o.Pods) / float64(serving[after-1].pods)
	}
	for {
		for old > 0 && old+available > o.Pods-o.MaxUnavailable {
			old--
			e := end(t, load, share, random)
			serve(-1)
			out.Met, out.Cut, out.Failed, out.Refused = out.Met+e.Met, out.Cut+e.Cut, out.Failed+e.Failed, out.Refused+e.Refused
			out.Stayed += e.Stayed
			out.Killed = out.Killed || e.Killed
			out.Gone = max(out.Gone, now+e.Stayed)
			changes = append(changes, change{now + e.Stayed, -1})
		}
		for created < o.Pods && old+created < o.Pods+o.MaxSurge {
			created++
			ready := now + o.Start.draw(starts)
			heap.Push(&next, event{ready, true})
			heap.Push(&next, event{ready + o.wait(starts) + o.Reaction, false})
			changes = append(changes, change{now, 1})
		}
		if available == o.Pods {
			out.Took = now
			break
		}
		e := heap.Pop(&next).(event)
		if now = e.at; e.isReady {
			serve(+1)
		} else {
			available++
		}
	}
	out.Gone = max(out.Gone, out.Took)
	out.Stayed /= time.Duration(o.Pods)
	out.Requests = o.Load.Rate * out.Gone.Seconds()
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	extra, since := 0, time.Duration(0)
	for _, c := range changes {
		out.Extra += time.Duration(max(extra, 0)) * (c.at - since)
		extra, since = extra+c.by, c.at
		out.Peak = max(out.Peak, extra)
	}
	return out, nil
}

// wait is how long a pod must be ready until it counts as available. The time from which that is reckoned is in whole
// seconds, rounded down.
func (o Rollout) wait(r *rand.Rand) time.Duration {
	if o.MinReady < time.Second {
		return o.MinReady
	}
	return o.MinReady - time.Duration(r.Int64N(int64(time.Second)))
}

// event happens to a new pod: it is ready, and serves; or the controllers react, since it is available.
type event struct {
	at      time.Duration
	isReady bool
}

// events is a heap.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(one any)      { *e = append(*e, one.(event)) }

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
