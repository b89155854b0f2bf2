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

// podTable has the lives of a cluster's pods of one kind.
type podTable struct {
	Title, Clock string // the clock of the times
	Columns      []string
	Pods         []podLine
	More         string // about pods that the table does not list
}

type podLine struct {
	Pod
	Times []string
}

func (t *podTable) add(p Pod, times ...string) { t.Pods = append(t.Pods, podLine{p, times}) }

// podTables returns the tables of the row's last run, without empty ones.
func podTables(row Row) (all []podTable) {
	ended := podTable{Title: "Pods that ended", Clock: "deleted in the rollout; the rest after the deletion", Columns: []string{"deleted", "unready", "SIGTERM", "ended", "gone"}}
	started := podTable{Title: "New pods", Clock: "in the rollout", Columns: []string{"created", "ready", "endpoint"}}
	after := func(at, from int64) string {
		if at < 0 || from < 0 {
			return "-"
		}
		return console.Seconds(ms(max(0, at-from)))
	}
	for _, p := range row.Runs[len(row.Runs)-1].Pods {
		if p.DeletedMS >= 0 {
			ended.add(p, after(p.DeletedMS, 0), after(p.UnreadyMS, p.DeletedMS), after(p.TermMS, p.DeletedMS), after(p.EndedMS, p.DeletedMS), after(p.GoneMS, p.DeletedMS))
		} else if p.IsNew {
			started.add(p, after(p.CreatedMS, 0), after(p.ReadyMS, 0), after(p.ServingMS, 0))
		}
	}
	for _, t := range []podTable{ended, started} {
		if n := len(t.Pods) - maxPods; n > 0 {
			t.Pods, t.More = t.Pods[:maxPods], fmt.Sprintf("and %d more, which the JSON has", n)
		}
		if len(t.Pods) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// pods writes the lives of a cluster's pods.
func (t *table) pods(row Row) {
	for _, pods := range podTables(row) {
		t.line("%s", t.style.Bold(pods.Title)+t.style.Dim(": "+pods.Clock))
		t.podLine("", pods.Columns)
		for _, p := range pods.Pods {
			t.podLine(p.Name, p.Times)
			for _, e := range p.Events {
				t.wrapped("    ", e)
			}
		}
		if pods.More != "" {
			t.line("%s", t.style.Dim(pods.More))
		}
		t.line("")
	}
}

func (t *table) podLine(name string, cells []string) {
	text := console.Left(console.Cut(name, podWidth-1), podWidth)
	for _, c := range cells {
		text += console.Right(c, timeWidth)
	}
	t.line("%s", text)
}
