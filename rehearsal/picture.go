package rehearsal

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/timeline"
)

// Picture draws the rows over one clock that starts at the scale-down: the request, and below it the pod.
func (r *Result) Picture() timeline.Chart {
	c := timeline.Chart{Title: fmt.Sprintf("GET %s: its pod is stopped at 0 s", r.Path)}
	for _, row := range r.Rows {
		c.Rows = append(c.Rows, row.picture())
	}
	return c
}

// wasted is how long a pod may stay idle without a remark.
const wasted = time.Second

func (r *Row) picture() timeline.Row {
	lastByte, stayed := duration(r.LastByteMS), duration(r.StayedMS)
	request, end := timeline.Answered, timeline.Gone
	if !r.isAnswered() {
		request = timeline.Lost
	}
	if r.Killed {
		end = timeline.Kill
	}
	out := timeline.Row{
		Group: r.Group, Label: r.Label, IsOurs: r.lastcall,
		Spans: []timeline.Span{
			{Kind: request, From: max(0, duration(r.LastByteMS-r.TookMS)), To: lastByte},
			{Kind: timeline.Needed, From: 0, To: min(lastByte, stayed)},
		},
		Marks: []timeline.Mark{{Kind: end, At: stayed}},
	}
	out.Outcome, out.Verdict = r.outcome()
	if idle := stayed - lastByte; idle > 100*time.Millisecond {
		out.Spans = append(out.Spans, timeline.Span{Kind: timeline.Idle, From: max(0, lastByte), To: stayed})
	}
	if r.AppTermMS != nil {
		out.Marks = append(out.Marks, timeline.Mark{Kind: timeline.Term, At: duration(*r.AppTermMS)})
	}
	return out
}

func (r *Row) isAnswered() bool { return r.Status == 200 && r.Error == "" }

// outcome is the meaning of the row, in words that fit the picture.
func (r *Row) outcome() (string, timeline.Verdict) {
	idle := duration(r.StayedMS - r.LastByteMS)
	took := fmt.Sprintf("%d after %.1f s", r.Status, r.TookMS/1000)
	if r.Status == 0 {
		took = fmt.Sprintf("no response, after %.1f s", r.TookMS/1000)
	}
	switch {
	case r.isAnswered() && idle < wasted:
		return took + ", and the pod exits at once", timeline.Good
	case r.isAnswered() && r.Killed:
		return fmt.Sprintf("%s, but the pod idles for %.0f s until SIGKILL", took, idle.Seconds()), timeline.Poor
	case r.isAnswered():
		return fmt.Sprintf("%s, but the pod idles for %.0f s", took, idle.Seconds()), timeline.Poor
	case r.lastcall && !r.Killed:
		return took + ": reported, before SIGKILL", timeline.Good
	case r.Killed:
		return took + ": the request fails at SIGKILL", timeline.Bad
	case idle >= wasted:
		return fmt.Sprintf("%s: the request fails, the pod idles for %.0f s", took, idle.Seconds()), timeline.Bad
	}
	return took + ": the request fails", timeline.Bad
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
