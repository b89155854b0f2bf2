package check

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// documentation is where the pages of Check.Page are.
const documentation = "https://github.com/lastcall-dev/lastcall/blob/main/docs/"

// Style is how the result is printed.
type Style struct {
	Unicode bool // ✓ ‼ ✗ instead of words
	Colour  bool
}

func (s Style) mark(status Status) string {
	mark := map[Status][3]string{OK: {"✓", "ok  ", "32"}, Warning: {"‼", "WARN", "33"}, Failed: {"✗", "FAIL", "31"}}[status]
	text := mark[1]
	if s.Unicode {
		text = mark[0]
	}
	if s.Colour {
		return "\x1b[" + mark[2] + "m" + text + "\x1b[0m"
	}
	return text
}

// WriteText prints the result for people.
func (r *Result) WriteText(w io.Writer, s Style) error {
	var b strings.Builder
	rule := "-"
	if s.Unicode {
		rule = "─"
	}
	for i, g := range r.Groups {
		if len(g.Checks) == 0 {
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s\n%s\n", g.Name, strings.Repeat(rule, len(g.Name)))
		for _, c := range g.Checks {
			b.WriteString(s.mark(c.Status) + " " + c.Name)
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
	fmt.Fprintf(&b, "\n%s: %d ok, %d warnings, %d errors\n", s.mark(r.Status()), r.Count(OK), r.Count(Warning), r.Count(Failed))
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
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Status Status  `json:"status"`
		Groups []Group `json:"groups"`
	}{r.Status(), r.Groups})
}
