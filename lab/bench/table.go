package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// metric is something that a turn measures. Times are in seconds, memory in bytes.
type metric struct {
	title string
	show  func(float64) string
	more  bool // more of it is better
	// neutral metrics are neither better nor worse: --against has no verdict about them.
	neutral bool
}

// Metrics that several tables have.
var (
	requestRate   = &metric{title: "requests/s", show: whole, more: true}
	p50           = &metric{title: "p50", show: milliseconds}
	p99           = &metric{title: "p99", show: milliseconds}
	cpuPerRequest = &metric{title: "CPU per request", show: microseconds}
	// coreUsed is the proxy's share of its core, 0 to 1, under as much load as it takes. Well below 1, the load or the app
	// was the limit.
	coreUsed    = &metric{title: "core used", show: percent, neutral: true}
	idleMemory  = &metric{title: "resident idle", show: megabytes}
	perPair     = &metric{title: "per client's connection", show: kilobytes}
	socketsEach = &metric{title: "sockets for each", show: hundredths}
)

// values are the results of one turn. A metric that does not apply, such as the processor time of no proxy, is left
// out.
type values map[*metric]float64

// column is one of a table's.
type column struct {
	title string
	of    *metric
	cell  func(of *metric, rounds []float64) string // of at least one round
}

// middle is the column of medians.
func middle(m *metric) column {
	return column{title: m.title, of: m, cell: func(m *metric, rounds []float64) string { return m.show(median(rounds)) }}
}

// extent is the column of the lowest and highest of the rounds.
func extent(m *metric) column {
	return column{title: "lowest to highest", of: m, cell: func(m *metric, rounds []float64) string {
		return m.show(slices.Min(rounds)) + " to " + m.show(slices.Max(rounds))
	}}
}

// worst is the column of the worst rounds.
func worst(m *metric) column {
	return column{title: "worst", of: m, cell: func(m *metric, rounds []float64) string {
		if m.more {
			return m.show(slices.Min(rounds))
		}
		return m.show(slices.Max(rounds))
	}}
}

// titled is the same column with another title.
func (c column) titled(title string) column { c.title = title; return c }

// aim is the value that lastcall has to reach.
type aim struct {
	kase   string // of the table; empty where it has none
	ours   string // subject
	of     *metric
	theirs string // subject, or empty for an aim that is a figure
	// limit is a multiple of theirs, or a figure in the metric's unit: at least so much where more is better, else at
	// most.
	limit float64
}

// outcome is the result of a table.
type outcome struct {
	*table
	subjects   []subject
	cases      []string
	samples    map[string]map[string][]values // by case and subject; in order of the rounds, nil for a turn that failed
	failed     []string                       // the errors, in words
	failedOurs bool                           // lastcall is among them
	left       []string                       // subjects that were left out for want of their program
	complete   bool                           // no turn is missing, but those that failed
}

// rounds are the figures of the rounds in which the subject gave any.
func (o *outcome) rounds(kase, subject string, m *metric) (all []float64) {
	for _, v := range o.samples[kase][subject] {
		if figure, ok := v[m]; ok {
			all = append(all, figure)
		}
	}
	return all
}

// title is that of a subject, and the case if the table has several.
func (o *outcome) title(name, kase string) string {
	title := subjects[slices.IndexFunc(subjects, func(s subject) bool { return s.name == name })].title
	if kase != "" {
		title += ", " + kase
	}
	return title
}

// write makes the Markdown of it: the figures, the aims that were missed, and notes.
func (o *outcome) write(out io.Writer) {
	for _, kase := range o.cases {
		o.writeCase(out, kase)
	}
	o.writeMissed(out)
	var notes []string
	for _, name := range o.left {
		notes = append(notes, "Left out, for its program is not on this machine: "+o.title(name, "")+".")
	}
	for _, what := range o.failed {
		notes = append(notes, "Failed: "+what+".")
	}
	writeList(out, notes)
}

func writeList(out io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(out, "- "+line)
	}
	if len(lines) > 0 {
		fmt.Fprintln(out)
	}
}

func (o *outcome) writeCase(out io.Writer, kase string) {
	if kase != "" {
		fmt.Fprintf(out, "%s:\n\n", kase)
	}
	fmt.Fprint(out, "| through |")
	for _, c := range o.columns {
		fmt.Fprintf(out, " %s |", c.title)
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---:|", len(o.columns)))
	for _, s := range o.subjects {
		if len(o.samples[kase][s.name]) == 0 {
			continue
		}
		title := s.title
		if s.ours {
			title = "**" + title + "**"
		}
		fmt.Fprintf(out, "| %s |", title)
		for _, c := range o.columns {
			text := "–"
			if rounds := o.rounds(kase, s.name, c.of); len(rounds) > 0 {
				text = c.cell(c.of, rounds)
			}
			fmt.Fprintf(out, " %s |", text)
		}
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out)
}

// writeRatios compares lastcall with each subject that does the same work, and names the proxies whose figures report
// more about the machine than about them.
func (o *outcome) writeRatios(out io.Writer, kase string) {
	var lines []string
	for _, m := range o.ratios {
		for _, ours := range o.subjects {
			if !ours.ours || ours.rival != "" {
				continue
			}
			var times []string
			for _, theirs := range o.subjects {
				if theirs.ours || theirs.tcp != ours.tcp && theirs.command != nil {
					continue
				}
				if ratio, ok := o.ratio(kase, ours.name, theirs.name, m); ok {
					times = append(times, fmt.Sprintf("%.2f × %s", ratio, theirs.title))
				}
			}
			if len(times) > 0 {
				title := strings.ToUpper(m.title[:1]) + m.title[1:]
				lines = append(lines,
					fmt.Sprintf("%s of %s: %s.", title, o.title(ours.name, kase), strings.Join(times, "; ")))
			}
		}
	}
	var limited []string
	for _, s := range o.subjects {
		if rounds := o.rounds(kase, s.name, coreUsed); len(rounds) > 0 && median(rounds) < 0.85 {
			limited = append(limited, fmt.Sprintf("%s (%s)", s.title, percent(median(rounds))))
		}
	}
	if len(limited) > 0 {
		lines = append(lines, "Caution: less than 85 % of the core was used by "+strings.Join(limited, ", ")+
			": load and app were the limit there, or something else ran. Processor time for each unit of work holds.")
	}
	writeList(out, lines)
}

// ratio is that of two medians, ours first.
func (o *outcome) ratio(kase, ours, theirs string, m *metric) (ratio float64, ok bool) {
	x, y := o.rounds(kase, ours, m), o.rounds(kase, theirs, m)
	if len(x) == 0 || len(y) == 0 || median(y) == 0 {
		return 0, false
	}
	return median(x) / median(y), true
}

// writeMissed lists the aims that were missed.
func (o *outcome) writeMissed(out io.Writer) {
	var missed []string
	for _, a := range o.aims {
		ours := o.rounds(a.kase, a.ours, a.of)
		if len(ours) == 0 {
			continue
		}
		measure, limit := median(ours), a.of.show(a.limit)
		if a.theirs != "" {
			ratio, ok := o.ratio(a.kase, a.ours, a.theirs, a.of)
			if !ok {
				continue
			}
			measure, limit = ratio, fmt.Sprintf("%.4g × %s", a.limit, o.title(a.theirs, ""))
		}
		bound, isMissed := "at most", measure > a.limit
		if a.of.more {
			bound, isMissed = "at least", measure < a.limit
		}
		if isMissed {
			missed = append(missed, fmt.Sprintf("Aim missed: %s: %s %s %s: %s.",
				o.title(a.ours, a.kase), a.of.title, bound, limit, a.of.show(median(ours))))
		}
	}
	writeList(out, missed)
}

// median of an even number of figures is the lower of the middle two.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[(len(sorted)-1)/2]
}

func milliseconds(seconds float64) string { return fmt.Sprintf("%.2f ms", seconds*1e3) }
func microseconds(seconds float64) string { return fmt.Sprintf("%.1f µs", seconds*1e6) }
func megabytes(bytes float64) string      { return fmt.Sprintf("%.1f MB", bytes/1e6) }
func kilobytes(bytes float64) string      { return fmt.Sprintf("%.1f KB", bytes/1e3) }
func percent(share float64) string        { return fmt.Sprintf("%.0f %%", share*100) }
func hundredths(v float64) string         { return fmt.Sprintf("%.2f", v) }

// whole writes 12345 as 12,345.
func whole(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
