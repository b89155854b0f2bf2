package rehearsal

import (
	"fmt"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/timeline"
)

// Picture draws the rows over one clock, from the scale-down on: the request
// above, the pod that stays for it below.
func (r *Result) Picture() timeline.Chart {
	c := timeline.Chart{
		Title: fmt.Sprintf("GET %s, and its pod told to stop at 0 s", r.Path),
		Key: []timeline.Entry{
			{Kind: timeline.Answered, Text: "request, answered"},
			{Kind: timeline.Lost, Text: "request, lost"},
			{Kind: timeline.Waiting, Text: "pod needed"},
			{Kind: timeline.Idle, Text: "pod stays for nothing"},
			{Kind: timeline.Term, Text: "app's SIGTERM"},
			{Kind: timeline.Kill, Text: "SIGKILL"},
			{Kind: timeline.Gone, Text: "pod gone"},
		},
	}
	for _, row := range r.Rows {
		c.Rows = append(c.Rows, row.picture())
	}
	return c
}

func (r *Row) picture() timeline.Row {
	lastByte, stayed := duration(r.LastByteMS), duration(r.StayedMS)
	request, end := timeline.Answered, timeline.Gone
	if r.Status != 200 {
		request = timeline.Lost
	}
	if r.Killed {
		end = timeline.Kill
	}
	out := timeline.Row{
		Label:  r.Strategy,
		Result: fmt.Sprintf("%d after %.1f s, pod %.1f s", r.Status, r.TookMS/1000, r.StayedMS/1000),
		Good:   r.Status == 200 || r.lastcall,
		Spans: []timeline.Span{
			{Kind: request, From: max(0, duration(r.LastByteMS-r.TookMS)), To: lastByte, Text: "the request"},
			{Kind: timeline.Waiting, From: 0, To: min(lastByte, stayed), Text: "the pod, while the request needs it"},
		},
		Marks: []timeline.Mark{{Kind: end, At: stayed, Text: "the pod is gone"}},
	}
	if r.Status == 0 {
		out.Result = fmt.Sprintf("cut after %.1f s, pod %.1f s", r.TookMS/1000, r.StayedMS/1000)
	}
	if idle := stayed - lastByte; idle > 100*time.Millisecond {
		out.Spans = append(out.Spans, timeline.Span{Kind: timeline.Idle, From: max(0, lastByte), To: stayed, Text: "the pod, with nothing to do"})
	}
	if r.AppTermMS != nil {
		out.Marks = append(out.Marks, timeline.Mark{Kind: timeline.Term, At: duration(*r.AppTermMS), Text: "SIGTERM to the app"})
	}
	return out
}

func duration(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
