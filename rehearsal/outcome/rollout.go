package outcome

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Rollout is pods that were replaced under load.
type Rollout struct {
	Began time.Time
	Old   []Ending // of the replaced pods

	// Gateway is the address, host:port, of the gateway, behind which it is unknown which pod has answered. Empty: the
	// clients connect to the pods.
	Gateway string

	// Propagation is how long the slowest client takes to learn of a change.
	Propagation time.Duration
}

// Ending is how one pod ended. A zero time: it did not happen.
type Ending struct {
	Name    string // empty: the only pod of the rollout
	Address string // host:port
	EndedBy string // "exit 0", "SIGKILL"

	Deleted, HookEnded, Term, Killed, Gone time.Time

	HookError string
	Cause     string // a property of the app that shows at its end, such as that it ignores SIGTERM
}

const (
	// killSpan is how long before SIGKILL a failure may be recorded that it caused.
	killSpan = 30 * time.Millisecond

	// lingering is how long after a pod's end a loss of unknown origin may still be due to it.
	lingering = 5 * time.Second

	maxSuspects = 5 // pods that a loss names
)

// Phase is a part of an old pod's end.
type Phase string

// The phases.
const (
	Serving     Phase = "before the deletion"
	InHook      Phase = "while preStop ran"
	Terminating Phase = "after SIGTERM"
	Killed      Phase = "at SIGKILL"
	Gone        Phase = "after the pod's end"
	Elsewhere   Phase = "on the new pod"
	Between     Phase = "while no pod ended" // of a rollout that had begun, through its gateway
)

// blame returns in which phase a request was lost, the ending that explains it, if there is one, and the names of the
// pods that may have lost it, the likeliest first.
func (r *Rollout) blame(s load.Sent) (e *Ending, phase Phase, pods []string) {
	at := failedAt(s)
	if at.Before(r.Began) {
		return nil, Serving, nil
	}
	if s.Address != "" && s.Address != r.Gateway {
		i := slices.IndexFunc(r.Old, func(e Ending) bool { return e.Address == s.Address })
		if i < 0 {
			return nil, Elsewhere, nil
		}
		if r.Old[i].Name != "" {
			pods = []string{r.Old[i].Name}
		}
		return &r.Old[i], r.Old[i].phase(s), pods
	}
	var suspects []*Ending
	for i := range r.Old {
		e := &r.Old[i]
		if !at.Before(e.Deleted) && at.Before(e.Gone.Add(lingering)) {
			suspects = append(suspects, e)
		}
	}
	if len(suspects) == 0 {
		return nil, Between, nil
	}
	slices.SortStableFunc(suspects, func(a, b *Ending) int { return cmp.Compare(a.distance(at), b.distance(at)) })
	for _, e := range suspects[:min(len(suspects), maxSuspects)] {
		pods = append(pods, e.Name)
	}
	return suspects[0], suspects[0].phase(s), pods
}

// failedAt is when a pod lost the request: a refused one at its beginning, which its client may have repeated.
func failedAt(s load.Sent) time.Time {
	if s.Reason == traffic.Refused {
		return s.Began
	}
	return s.Last
}

// distance is how far a time is from the pod's SIGTERM or end, whichever is closer.
func (e *Ending) distance(at time.Time) time.Duration {
	term := e.Term
	if term.IsZero() {
		term = e.Deleted
	}
	return min(at.Sub(term).Abs(), at.Sub(e.Gone).Abs())
}

// phase is the part of the pod's end in which a request was lost.
func (e *Ending) phase(s load.Sent) Phase {
	at := failedAt(s)
	switch {
	case at.Before(e.Deleted):
		return Serving
	case s.Began.After(e.Gone):
		return Gone
	case !e.Killed.IsZero() && at.After(e.Killed.Add(-killSpan)):
		return Killed
	case e.Term.IsZero() || at.Before(e.Term):
		return InHook
	}
	return Terminating
}

// Kinds describes the requests of a load that was measured.
func Kinds(l *load.Load) (all []Kind) {
	for i, r := range l.Requests {
		took := l.References[i].Took + time.Millisecond - time.Nanosecond // rounded up: 0 is a response without an end
		all = append(all, Kind{r.String(), r.Weight, took.Milliseconds(), l.References[i].Bytes})
	}
	return all
}

// Record adds a rollout under load to the row.
func (row *Row) Record(l *load.Load, r *Rollout) {
	answered, lost := l.Counts()
	row.Load, row.Requests = l.Rate, row.Requests+answered+lost
	type connection struct {
		client int
		number int64
	}
	used := map[connection]bool{}
	for _, s := range l.Sent() {
		c := connection{s.Client, s.Conn}
		isKept := used[c] && s.Conn != 0
		used[c] = true
		if s.Reason != "" {
			e, phase, pods := r.blame(s)
			at := r.since(s.Last)
			row.lose(Loss{Request: l.Requests[s.Request].String(), Reason: s.Reason, Phase: phase, Count: 1,
				FirstMS: at, LastMS: at, Pods: pods, Detail: s.Detail,
				Fix: r.advice(e, phase, s.Reason, l.References[s.Request].Took, isKept)})
		}
	}
	row.Runs = append(row.Runs, r.round())
}

// lose counts a request that was lost alone.
func (row *Row) lose(lost Loss) {
	if lost.Phase == Serving || lost.Phase == Elsewhere {
		row.Faults++
	} else {
		row.Lost++
		row.Reasons[lost.Reason]++
	}
	for i := range row.Losses {
		l := &row.Losses[i]
		if l.Request == lost.Request && l.Reason == lost.Reason && l.Phase == lost.Phase {
			l.Count++
			l.FirstMS, l.LastMS = min(l.FirstMS, lost.FirstMS), max(l.LastMS, lost.LastMS)
			return
		}
	}
	row.Losses = append(row.Losses, lost)
}

// since is a time in milliseconds from the beginning. -1: there is none.
func (r *Rollout) since(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	return at.Sub(r.Began).Milliseconds()
}

// round describes the endings: the first hook's end, SIGTERM and SIGKILL, and the end of the last pod.
func (r *Rollout) round() Round {
	run := Round{HookEndMS: -1, TermMS: -1, KillMS: -1, GoneMS: -1}
	first := func(all *int64, at time.Time) {
		if ms := r.since(at); ms >= 0 && (*all < 0 || ms < *all) {
			*all = ms
		}
	}
	ends := map[string]int{}
	for _, e := range r.Old {
		first(&run.HookEndMS, e.HookEnded)
		first(&run.TermMS, e.Term)
		first(&run.KillMS, e.Killed)
		run.GoneMS = max(run.GoneMS, r.since(e.Gone))
		run.HookError, run.Cause = cmp.Or(run.HookError, e.HookError), cmp.Or(run.Cause, e.Cause)
		ends[e.EndedBy]++
		if e.Name != "" {
			run.Pods = append(run.Pods, Pod{
				Name: e.Name, DeletedMS: r.since(e.Deleted), TermMS: r.since(e.Term),
				GoneMS: r.since(e.Gone), EndedBy: e.EndedBy,
			})
		}
	}
	var texts []string
	for _, text := range slices.Sorted(maps.Keys(ends)) {
		if n := ends[text]; n > 1 {
			text = fmt.Sprintf("%d × %s", n, text)
		}
		texts = append(texts, text)
	}
	run.EndedBy = strings.Join(texts, "; ")
	return run
}

const (
	// adviceFinish is for a request that was in flight at the app's exit.
	adviceFinish = "the app exits with requests in flight: finish them after SIGTERM, or delay the SIGTERM " +
		"until there are none, as lastcall does"

	// adviceLingers is for a connection that the app kept until SIGKILL, although there was time to finish it.
	adviceLingers = "the app serves its kept connections until SIGKILL: after SIGTERM, send Connection: close with " +
		"each response, close connections without a request, and exit"

	// adviceKept is for a connection that its client had kept and that ended before SIGTERM: by the app's own idle
	// timeout, or because the hook ends at a moment without requests.
	adviceKept = "the client sent it on a connection that it had kept, just as that one was being closed: no hook " +
		"can announce this to clients. Let the app send Connection: close, or use lastcall's sidecar, which does"
)

// advice is the setting that would have saved a request. e is the ending that explains its loss, nil if none does; took
// is how long the undisturbed request takes; isKept: its connection had carried others.
func (r *Rollout) advice(e *Ending, when Phase, why traffic.Failure, took time.Duration, isKept bool) string {
	switch {
	case when == Between:
		return "no pod was ending: a new pod got requests before it could answer them; " +
			"give it a readiness probe that fails until then"
	case e == nil || when == Serving:
		return "not lost by the rollout: the app fails under this load; lower --load, or raise --timeout"
	case when == Killed && e.Cause != "":
		return e.Cause
	case when == Killed && !e.Term.IsZero() && e.Killed.Sub(e.Term) > took+time.Second:
		return adviceLingers
	case when == Killed:
		return fmt.Sprint("the grace period ended: terminationGracePeriodSeconds of at least ", r.graceNeeded(e, took))
	case (why == traffic.Refused || when == Gone) && r.Propagation == 0:
		return "clients still used the pod when it no longer listened: " +
			"keep its listener open for some seconds, with a preStop sleep or lastcall"
	case why == traffic.Refused || when == Gone:
		return fmt.Sprintf("clients learn of the deletion up to %s late: "+
			"keep the listener open for that long, with a preStop sleep of %d or lastcall",
			terminal.Seconds(r.Propagation), int(podend.WholeSeconds(r.Propagation+time.Second)/time.Second))
	case why.IsStatus():
		return "the app refuses requests that clients still send, or a proxy had no pod for them: " +
			"continue to serve until the endpoint is gone, fail readiness at most"
	case why == traffic.NoClose && when == Terminating:
		return "end the stream in order at SIGTERM: " +
			"the last chunk of an event stream, a close frame 1001 on a WebSocket"
	case why == traffic.Short:
		return "the response has neither a length nor chunks, so its client takes a part for the whole: " +
			"send one of them, and finish before the exit"
	case why == traffic.Late:
		return "no complete response within --timeout: the app hangs after SIGTERM"
	case when == InHook && isKept:
		return adviceKept
	case when == InHook:
		return "the app ended a request before its SIGTERM: the preStop hook stops the app too early"
	case isKept && r.Propagation > 0 && e.Term.Sub(e.Deleted) > r.Propagation:
		return "no client has the endpoint any longer, but their kept connections still carry requests: " +
			"finish these after SIGTERM, with Connection: close, or use lastcall's sidecar"
	}
	return adviceFinish
}

// graceNeeded is a grace period, in seconds, that holds the hook, the propagation delay and one more request.
func (r *Rollout) graceNeeded(e *Ending, took time.Duration) int {
	hook := e.HookEnded.Sub(e.Deleted) // negative without one
	return int(podend.Grace(max(hook, r.Propagation)+took) / time.Second)
}
