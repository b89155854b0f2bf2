package model

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/kube/termination"
)

// Rollout is how a Deployment replaces its pods.
type Rollout struct {
	Pods           int           // replicas, 1 to 100,000
	MaxSurge       int           // pods
	MaxUnavailable int           // pods; not 0 together with MaxSurge
	Start          time.Duration // from a pod's creation until it is ready
	MinReady       time.Duration // minReadySeconds
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

// Run simulates the rollout: new pods are created up to Pods + MaxSurge, terminating ones not counted; old ones are deleted
// as long as Pods - MaxUnavailable are available.
func (o Rollout) Run(t *termination.Termination) (Result, error) {
	if err := o.Validate(); err != nil {
		return Result{}, err
	}
	random := rand.New(rand.NewPCG(o.Seed, 2))
	load := o.Load
	load.Rate /= float64(o.Pods)
	var out Result
	var changes []change
	var ready []time.Duration // when new pods become available, ascending; all starts take the same time
	old, created, available := o.Pods, 0, 0
	for now := time.Duration(0); ; {
		for available < len(ready) && ready[available] <= now {
			available++
		}
		for old > 0 && old+available > o.Pods-o.MaxUnavailable {
			old--
			e := End(t, load, random)
			out.Met, out.Cut, out.Failed, out.Refused = out.Met+e.Met, out.Cut+e.Cut, out.Failed+e.Failed, out.Refused+e.Refused
			out.Stayed += e.Stayed
			out.Killed = out.Killed || e.Killed
			out.Gone = max(out.Gone, now+e.Stayed)
			changes = append(changes, change{now + e.Stayed, -1})
		}
		for created < o.Pods && old+created < o.Pods+o.MaxSurge {
			created++
			ready = append(ready, now+o.Start+o.MinReady)
			changes = append(changes, change{now, 1})
		}
		if available == o.Pods && old == 0 {
			out.Took = now
			break
		}
		now = ready[available]
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
