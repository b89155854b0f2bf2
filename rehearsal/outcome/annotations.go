package outcome

import (
	"fmt"
	"io"
	"strings"
)

// escape is the quoting of a workflow command's data (toolkit/docs/commands.md of GitHub's actions).
var escape = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")

// WriteGitHub writes the first strategy's losses as GitHub's annotations: an error for each kind, and a notice without any.
func (r *Result) WriteGitHub(w io.Writer) error {
	row := r.Rows[0]
	title := "rehearse"
	if r.Workload != "" {
		title += ": " + r.Workload
	}
	title = strings.NewReplacer(":", "%3A", ",", "%2C").Replace(escape.Replace(title))
	for _, l := range row.Losses {
		text := fmt.Sprintf("%d × %s: %s %s (%s). %s", l.Count, l.Request, l.Reason, l.Phase, l.Span(), l.Fix)
		if _, err := fmt.Fprintf(w, "::error title=%s::%s\n", title, escape.Replace(text)); err != nil {
			return err
		}
	}
	if row.Lost > 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "::notice title=%s::%s lost none of %d requests\n", title, row.Strategy, row.Requests)
	return err
}
