package outcome

import (
	"fmt"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// Sizes of the table of pods, columns.
const (
	podWidth  = 30
	timeWidth = 9
	maxPods   = 20 // that the table lists
)

// pods writes the ends of the pods of the row's last run, if there are several.
func (t *table) pods(row Row) {
	pods := row.Runs[len(row.Runs)-1].Pods
	if len(pods) == 0 {
		return
	}
	t.line("%s", t.style.Bold("Pods that ended")+t.style.Dim(": deleted in the rollout; the rest after the deletion"))
	t.podLine("", "deleted", "SIGTERM", "ended", "gone")
	after := func(at, from int64) string {
		if at < 0 || from < 0 {
			return "-"
		}
		return terminal.Measured(ms(max(0, at-from)))
	}
	for _, p := range pods[:min(len(pods), maxPods)] {
		t.podLine(p.Name, after(p.DeletedMS, 0),
			after(p.TermMS, p.DeletedMS), after(p.EndedMS, p.DeletedMS), after(p.GoneMS, p.DeletedMS))
	}
	if n := len(pods) - maxPods; n > 0 {
		t.line("%s", t.style.Dim(fmt.Sprintf("and %d more, which the JSON has", n)))
	}
	t.line("")
}

func (t *table) podLine(name string, cells ...string) {
	text := console.Left(console.Cut(name, podWidth-1), podWidth)
	for _, c := range cells {
		text += console.Right(c, timeWidth)
	}
	t.line("%s", text)
}
