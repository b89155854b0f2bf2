package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/load"
	"github.com/lastcall-dev/lastcall/rehearsal/outcome"
)

// words describe a disruption.
func (r *run) words() string {
	switch r.How {
	case Scale:
		return fmt.Sprintf("scaled from %d to %d, and back", r.target.state.Wanted, r.Replicas)
	case DeletePod:
		return "pod " + r.target.pods[0].Name + " deleted"
	}
	return "restarted as by kubectl rollout restart; " + r.target.state.Update
}

// result is what was seen.
func (r *run) result(ctx context.Context) *outcome.Result {
	took := time.Since(r.began)
	if !r.completed.IsZero() {
		took = r.completed.Sub(r.began)
	}
	w := r.Workload
	res := &outcome.Result{
		Schema: outcome.Schema, App: r.URL.Redacted(), URL: r.URL.Redacted(), Workload: w.Kind + " " + w.Namespace + "/" + w.Name, PreStop: r.target.preStop(),
		GraceMS: max(1000, r.target.ending.GracePeriod().Milliseconds()), Requests: outcome.Kinds(r.load), Repeat: 1, TookMS: took.Milliseconds(), Notes: r.target.notes, Began: r.began,
	}
	switch {
	case ctx.Err() != nil:
		res.Notes = append(res.Notes, "interrupted: the result has what was seen until then; a rollout continues")
	case r.completed.IsZero():
		res.Notes = append(res.Notes, fmt.Sprintf("not complete within %v: kubectl --namespace %s rollout status %s", r.Limit, w.Namespace, w))
	}
	all := r.seen.all()
	events, note := r.events(ctx, all)
	res.Notes = append(res.Notes, note...)
	row := outcome.Row{Strategy: string(r.How), Words: r.words(), Load: r.load.Rate, Reasons: map[load.Reason]int{}}
	answered, lost := r.load.Counts()
	row.Requests = answered + lost
	run := r.round(all)
	for i := range run.Pods {
		run.Pods[i].Events = events[run.Pods[i].Name]
	}
	res.PropagationMS = propagation(run.Pods)
	for _, s := range r.load.Sent() {
		one := outcome.Sending{Request: s.Request, Client: s.Client, Conn: s.Conn, FromMS: r.since(s.Began), ToMS: r.since(s.Last), Status: s.Status, Reason: s.Reason}
		if s.Reason != "" {
			var pods []string
			one.Phase, pods = r.blame(all, s)
			one.Detail = s.Detail
			row.Lose(one, r.load.Requests[s.Request].String(), r.fix(all, s.Reason, one.Phase), pods...)
		}
		run.Sendings = append(run.Sendings, one)
	}
	row.Add(run)
	res.Rows = []outcome.Row{row}
	res.OK = row.Lost == 0 && ctx.Err() == nil && !r.completed.IsZero()
	return res
}

// since is a time in milliseconds from the beginning of the disruption. -1: there is none.
func (r *run) since(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	return at.Sub(r.began).Milliseconds()
}

// round describes the pods: those that ended, and new ones.
func (r *run) round(all []course) outcome.Round {
	run := outcome.Round{HookEndMS: -1, TermMS: -1, KillMS: -1, GoneMS: 0}
	ends := map[string]int{}
	var order []string
	for i := range all {
		c := &all[i]
		if !c.isNew && c.deleted.IsZero() {
			continue
		}
		p := outcome.Pod{
			Name: c.pod.Name, IsNew: c.isNew, CreatedMS: -1, ReadyMS: -1, ServingMS: -1, DeletedMS: r.since(c.deleted), UnreadyMS: r.since(c.unready), RemovedMS: r.since(c.removed),
			TermMS: r.since(r.terminated(c)), EndedMS: r.since(c.ended), GoneMS: r.since(c.gone), GraceMS: c.grace().Milliseconds(), EndedBy: c.endedBy(),
		}
		if c.isNew {
			p.CreatedMS, p.ReadyMS, p.ServingMS = r.since(c.created), r.since(c.ready), r.since(c.serving)
		}
		run.Pods = append(run.Pods, p)
		if c.deleted.IsZero() {
			continue
		}
		if p.TermMS >= 0 && (run.TermMS < 0 || p.TermMS < run.TermMS) {
			run.TermMS = p.TermMS
		}
		if c.killed() && (run.KillMS < 0 || p.EndedMS < run.KillMS) {
			run.KillMS = p.EndedMS
		}
		run.GoneMS = max(run.GoneMS, p.GoneMS)
		if p.EndedBy != "" {
			if ends[p.EndedBy]++; ends[p.EndedBy] == 1 {
				order = append(order, p.EndedBy)
			}
		}
	}
	slices.Sort(order)
	for i, text := range order {
		if n := ends[text]; n > 1 {
			order[i] = fmt.Sprintf("%d × %s", n, text)
		}
	}
	if run.EndedBy = strings.Join(order, "; "); run.EndedBy == "" {
		run.EndedBy = "unknown"
	}
	return run
}

// propagation is the shortest and the longest time from a pod's deletion until no EndpointSlice had it as ready.
func propagation(pods []outcome.Pod) (span [2]int64) {
	first := true
	for _, p := range pods {
		if p.DeletedMS < 0 || p.UnreadyMS < 0 {
			continue
		}
		lag := max(0, p.UnreadyMS-p.DeletedMS)
		if first {
			span, first = [2]int64{lag, lag}, false
		}
		span = [2]int64{min(span[0], lag), max(span[1], lag)}
	}
	return span
}
