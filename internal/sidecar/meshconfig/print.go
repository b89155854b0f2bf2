package meshconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// row is one line of the printed settings.
type row struct {
	Setting string `json:"setting"`
	Value   any    `json:"value"`
	Source  string `json:"source"`
	Path    string `json:"path,omitempty"`
	Line    int    `json:"line,omitempty"`
}

func (v value[T]) row(s *Settings, one *Setting) row {
	it := v.in(s)
	out := row{Setting: one.Name, Value: it.Value, Source: it.Source.String(), Line: it.Source.Line}
	if it.Path != one.Name {
		out.Path = it.Path
	}
	switch value := any(it.Value).(type) {
	case time.Duration:
		out.Value = value.String()
		if one.Name == VariableGracePeriod {
			out.Value = int(value / time.Second)
		}
	case []string:
		if value == nil {
			out.Value = []string{}
		}
	}
	return out
}

func (s *Settings) rows() (rows []row) {
	for i := range settings {
		rows = append(rows, settings[i].kind.row(s, &settings[i]))
	}
	target := &Setting{Name: annotationScrape}
	return append(rows, value[string]{in: func(s *Settings) *Value[string] { return &s.ScrapeTarget }}.row(s, target))
}

// notes are the warnings, and the timers that contradict each other.
func (s *Settings) notes() []string {
	notes := []string{}
	for _, w := range s.Warnings {
		notes = append(notes, w.String())
	}
	return append(notes, s.Drain().Contradictions()...)
}

// WriteText prints the settings as a table of setting, value and source, then the warnings and the timers that
// contradict each other.
func (s *Settings) WriteText(w io.Writer) error {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "SETTING\tVALUE\tSOURCE\n")
	for _, r := range s.rows() {
		value, ok := r.Value.(string)
		if !ok || value == "" {
			value = literal(r.Value)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Setting, value, r.Source)
	}
	_ = table.Flush() // a Buffer has no errors
	fmt.Fprintf(&b, "\nmode: %v\n", s.Mode())
	for _, note := range s.notes() {
		fmt.Fprintf(&b, "warning: %s\n", note)
	}
	if _, err := b.WriteTo(w); err != nil {
		return fmt.Errorf("print settings: %w", err)
	}
	return nil
}

// MarshalJSON gives {"mode", "settings": [{"setting", "value", "source"}], "warnings": [text]}. Durations are text with
// units, the grace period is a number of seconds; "path" and "line" are there where they add something.
func (s *Settings) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Mode     string   `json:"mode"`
		Settings []row    `json:"settings"`
		Warnings []string `json:"warnings"`
	}{s.Mode().String(), s.rows(), s.notes()})
}
