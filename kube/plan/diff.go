package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/terminal"
)

// Change is a difference between two plans of one workload.
type Change struct {
	Name     string // of the workload
	What     string
	Old, New string // empty: absent

	// IsWorse: requests that the old plan served are lost by the new one.
	IsWorse bool
}

// Diff compares plans of the same options, matched by their names, in the order of new ones; workloads that are gone come
// last.
func Diff(old, new []*Plan) []Change {
	find := func(all []*Plan, name string) *Plan {
		if i := slices.IndexFunc(all, func(p *Plan) bool { return p.Name == name }); i >= 0 {
			return all[i]
		}
		return nil
	}
	var out []Change
	for _, p := range new {
		if was := find(old, p.Name); was != nil {
			out = append(out, changes(was, p)...)
		} else {
			out = append(out, Change{Name: p.Name, What: "workload", New: strings.Join(p.Promises(), "; ")})
		}
	}
	for _, p := range old {
		if find(new, p.Name) == nil {
			out = append(out, Change{Name: p.Name, What: "workload", Old: "removed"})
		}
	}
	return out
}

func changes(old, new *Plan) []Change {
	var out []Change
	compare := func(what, a, b string, isWorse bool) {
		if a != b {
			out = append(out, Change{new.Name, what, a, b, isWorse})
		}
	}
	shorter := func(what string, a, b time.Duration) { compare(what, seconds(a), seconds(b), b < a) }
	compare("terminationGracePeriodSeconds", old.Grace.Value, new.Grace.Value, false)
	compare("mesh", orNone(old.Mesh), orNone(new.Mesh), false)
	compare("lastcall", yes(old.Lastcall), yes(new.Lastcall), false)
	a, b := old.facts(), new.facts()
	for _, f := range b {
		was := ""
		if i := slices.IndexFunc(a, func(g fact) bool { return g.what == f.what }); i >= 0 {
			was = a[i].value
		}
		compare(f.what, was, f.value, false)
	}
	for _, f := range a {
		if !slices.ContainsFunc(b, func(g fact) bool { return g.what == f.what }) {
			compare(f.what, f.value, "", false)
		}
	}
	shorter("requests in flight are served if they end within", old.Longest, new.Longest)
	compare("an idle pod serves new connections for", seconds(old.Accepts), seconds(new.Accepts), new.Accepts < old.Accepts && new.Accepts < new.Options.Propagation)
	compare("an idle pod is gone after", seconds(old.Empty), seconds(new.Empty), false)
	for i, f := range new.Fates {
		if i < len(old.Fates) && old.Fates[i].IsServed != f.IsServed {
			compare("a request of "+seconds(new.Options.Request)+" that "+f.arrival(), old.Fates[i].outcome(), f.outcome(), !f.IsServed)
		}
	}
	return out
}

// fact is one property of a container.
type fact struct{ what, value string }

func (p *Plan) facts() []fact {
	var out []fact
	for _, c := range p.Containers {
		out = append(out, fact{c.Name + ": preStop", c.PreStop.String()}, fact{c.Name + ": at " + c.StopSignal.Value, string(c.Reaction)})
		for _, s := range c.Settings {
			out = append(out, fact{c.Name + ": " + s.Name, s.Value})
		}
	}
	return out
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func yes(is bool) string { return map[bool]string{true: "yes", false: "no"}[is] }

// WriteChanges prints changes for people.
func WriteChanges(w io.Writer, changes []Change, s Style) error {
	var b strings.Builder
	name := ""
	for _, c := range changes {
		if c.Name != name {
			name = c.Name
			fmt.Fprintf(&b, "%s\n", s.bold(terminal.Printable(name)))
		}
		var text string
		switch {
		case c.Old == "":
			text = "new: " + c.New
		case c.New == "" && c.What == "workload":
			text = "removed"
		case c.New == "":
			text = "removed (" + c.Old + ")"
		default:
			text = c.Old + " -> " + c.New
		}
		prefix := "  "
		if c.IsWorse {
			prefix = "! "
		}
		wrap(&b, prefix, c.What+": "+text)
	}
	if len(changes) == 0 {
		b.WriteString("no workload's termination changes\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
