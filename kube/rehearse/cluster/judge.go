package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/kube/termination"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

const (
	// watchLag is how late a change of a pod may arrive here.
	watchLag = 200 * time.Millisecond

	// lingering is how long after a pod's end a loss may still be due to it.
	lingering = 5 * time.Second

	// killSpan is how far from a pod's end by SIGKILL a loss counts as its effect: the kubelet reports whole seconds.
	killSpan = time.Second

	maxSuspects = 5 // pods that a loss names
)

// terminated is when the app got SIGTERM, from a hook of known length; zero: unknown.
func (r *run) terminated(c *course) time.Time {
	hook := r.target.app().PreStop
	if c.deleted.IsZero() || hook.Kind != termination.NoHook && !hook.IsKnown {
		return time.Time{}
	}
	return c.deleted.Add(hook.Duration)
}

// blame returns the phase in which a request was lost, and the names of the pods that were ending then, the one first whose
// SIGTERM or end was the closest.
func (r *run) blame(all []course, s load.Sent) (outcome.Phase, []string) {
	at := s.Last
	if s.Reason == load.Refused {
		at = s.Began
	}
	if at.Before(r.began) {
		return outcome.Serving, nil
	}
	type suspect struct {
		name     string
		phase    outcome.Phase
		distance time.Duration
	}
	var suspects []suspect
	for i := range all {
		c := &all[i]
		if c.deleted.IsZero() || at.Before(c.deleted.Add(-watchLag)) || !c.gone.IsZero() && at.After(c.gone.Add(lingering)) {
			continue
		}
		phase, distance := r.phase(c, at)
		suspects = append(suspects, suspect{c.pod.Name, phase, distance})
	}
	if len(suspects) == 0 {
		return outcome.Between, nil
	}
	slices.SortStableFunc(suspects, func(a, b suspect) int { return cmp.Compare(a.distance, b.distance) })
	var names []string
	for _, s := range suspects[:min(len(suspects), maxSuspects)] {
		names = append(names, s.name)
	}
	return suspects[0].phase, names
}

// phase is the part of a pod's end that a time belongs to, and how far it is from the moment with which the part began.
func (r *run) phase(c *course, at time.Time) (outcome.Phase, time.Duration) {
	term := r.terminated(c)
	switch {
	case c.killed() && at.Sub(c.ended).Abs() <= killSpan:
		return outcome.Killed, at.Sub(c.ended).Abs()
	case !c.ended.IsZero() && at.After(c.ended):
		return outcome.Gone, at.Sub(c.ended)
	case term.IsZero():
		return outcome.Ending, at.Sub(c.deleted).Abs()
	case at.Before(term.Add(-watchLag)):
		return outcome.InHook, term.Sub(at)
	}
	return outcome.Terminating, at.Sub(term).Abs()
}

// fix is what would have saved a request that was lost by a reason in a phase.
func (r *run) fix(all []course, why load.Reason, when outcome.Phase) string {
	lag := time.Duration(0) // of the endpoints
	for _, c := range all {
		if !c.deleted.IsZero() && !c.unready.IsZero() {
			lag = max(lag, c.unready.Sub(c.deleted))
		}
	}
	switch {
	case when == outcome.Serving:
		return "not lost by the rollout: the service fails under this load; lower --load, or raise --timeout"
	case when == outcome.Between:
		return "no pod was ending: a new pod got requests before it could answer them; give it a readiness probe that fails until then"
	case when == outcome.Killed:
		return fmt.Sprintf("the grace period ended: raise terminationGracePeriodSeconds above %d", int(r.target.ending.GracePeriod()/time.Second))
	case why.IsStatus():
		return "a proxy had no pod that answered, or the app refuses requests that still arrive: continue to serve until no client uses the endpoint"
	case why == load.Refused || when == outcome.Gone:
		text := "clients still used the pod when it no longer listened: keep its listener open for some seconds, with a preStop sleep or lastcall"
		if lag > 0 {
			text += fmt.Sprintf(" (its endpoint was withdrawn after %s; kube-proxy, ingresses and load balancers need longer)", console.Seconds(lag))
		}
		return text
	case outcome.Advice[why] != "":
		return outcome.Advice[why]
	case when == outcome.InHook:
		return "a request ended before SIGTERM: the preStop hook stops the app, or a proxy in front has closed its connections"
	}
	return outcome.AdviceFinish
}
