package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/rehearsal/console"
)

// documentation is where the pages of Check.Page are.
const documentation = "https://github.com/lastcall-dev/lastcall/blob/main/docs/"

// mark is a status as a word of four letters.
func mark(s console.Style, status Status) string {
	switch status {
	case Failed:
		return s.Bad("FAIL")
	case Warning:
		return s.Bold("WARN")
	}
	return s.Good("ok  ")
}

// WriteText prints the result for people.
func (r *Result) WriteText(w io.Writer, s console.Style) error {
	var b strings.Builder
	for i, g := range r.Groups {
		if len(g.Checks) == 0 {
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n%s\n", g.Name, strings.Repeat("─", len(g.Name)))
		for _, c := range g.Checks {
			b.WriteString(mark(s, c.Status) + " " + c.Name)
			if c.Status == OK && c.Detail != "" {
				b.WriteString(": " + c.Detail)
			}
			b.WriteByte('\n')
			if c.Status != OK && c.Detail != "" {
				fmt.Fprintf(&b, "     %s\n", c.Detail)
			}
			if c.Hint != "" {
				fmt.Fprintf(&b, "     hint: %s\n", c.Hint)
			}
			if c.Page != "" && (c.Status != OK || c.Detail != "") {
				fmt.Fprintf(&b, "     see %s%s\n", documentation, c.Page)
			}
		}
	}
	fmt.Fprintf(&b, "\n%s: %d ok, %s, %s\n", mark(s, r.Status()), r.Count(OK),
		terminal.Count(r.Count(Warning), "warning"), terminal.Count(r.Count(Failed), "error"))
	_, err := io.WriteString(w, b.String())
	return err
}

// Status is that of the worst check.
func (r *Result) Status() Status {
	switch {
	case r.Count(Failed) > 0:
		return Failed
	case r.Count(Warning) > 0:
		return Warning
	}
	return OK
}

// WriteJSON prints the result for programs: {"status", "groups": [{"name", "checks": [...]}]}.
func (r *Result) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(printable.JSONWriter(w))
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Status Status  `json:"status"`
		Groups []Group `json:"groups"`
	}{r.Status(), r.Groups})
}
