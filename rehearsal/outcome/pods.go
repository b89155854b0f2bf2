package outcome

import (
	"fmt"

	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// Sizes of the table of pods, columns.
const (
	podWidth  = 30
	timeWidth = 9
	maxPods   = 20 // of each kind that the table lists
)

// pods writes the lives of a cluster's pods in the row's last run.
func (t *table) pods(row Row) {
	pods := row.Runs[len(row.Runs)-1].Pods
	var ended, started []Pod
	for _, p := range pods {
		if p.DeletedMS >= 0 {
			ended = append(ended, p)
		} else if p.IsNew {
			started = append(started, p)
		}
	}
	after := func(at, from int64) string {
		if at < 0 || from < 0 {
			return "-"
		}
		return console.Seconds(ms(max(0, at-from)))
	}
	line := func(name string, cells ...string) {
		text := console.Left(console.Cut(name, podWidth-1), podWidth)
		for _, c := range cells {
			text += console.Right(c, timeWidth)
		}
		t.line("%s", text)
	}
	if len(ended) > 0 {
		t.line("%s", t.style.Bold("pods that ended")+t.style.Dim(": deleted in the rollout; the rest after the deletion"))
		line("", "deleted", "unready", "SIGTERM", "ended", "gone")
		for _, p := range ended[:min(len(ended), maxPods)] {
			line(p.Name, after(p.DeletedMS, 0), after(p.UnreadyMS, p.DeletedMS), after(p.TermMS, p.DeletedMS), after(p.EndedMS, p.DeletedMS), after(p.GoneMS, p.DeletedMS))
			for _, e := range p.Events {
				t.wrapped("    ", e)
			}
		}
		t.more(len(ended))
	}
	if len(started) > 0 {
		t.line("%s", t.style.Bold("new pods")+t.style.Dim(": in the rollout"))
		line("", "created", "ready", "endpoint")
		for _, p := range started[:min(len(started), maxPods)] {
			line(p.Name, after(p.CreatedMS, 0), after(p.ReadyMS, 0), after(p.ServingMS, 0))
			for _, e := range p.Events {
				t.wrapped("    ", e)
			}
		}
		t.more(len(started))
	}
}

func (t *table) more(n int) {
	if n > maxPods {
		t.line("%s", t.style.Dim(fmt.Sprintf("and %d more, which the JSON has", n-maxPods)))
	}
	t.line("")
}
