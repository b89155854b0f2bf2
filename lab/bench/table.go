package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// metric is something that a turn measures.
type metric struct {
	title   string
	show    func(float64) string
	more    bool // more of it is better
	neutral bool // it is neither better nor worse: --against has no verdict about it
}

// values are the results of one turn. A metric that does not apply, such as the CPU of no proxy, is left out.
type values map[*metric]float64

// column is one of a table's.
type column struct {
	title string
	of    *metric
	cell  func(rounds []float64) string // of at least one round
}

// middle is the column of medians.
func middle(m *metric) column {
	return column{m.title, m, func(rounds []float64) string { return m.show(median(rounds)) }}
}

// extent is the column of the lowest and highest of the rounds.
func extent(m *metric) column {
	return column{"lowest to highest", m, func(rounds []float64) string {
		return m.show(slices.Min(rounds)) + " to " + m.show(slices.Max(rounds))
	}}
}

// worst is the column of the longest times.
func worst(m *metric) column {
	return column{"worst", m, func(rounds []float64) string { return m.show(slices.Max(rounds)) }}
}

// row is the place of a row in a table.
type row struct{ load, subject string }

// outcome is the result of a table.
type outcome struct {
	*table
	subjects []subject
	samples  map[row][]values // in order of the rounds, nil for a turn that failed
	failed   []string         // the errors, in words
}

// rounds are the figures of the rounds in which the subject gave any.
func (o *outcome) rounds(load, subject string, m *metric) (all []float64) {
	for _, v := range o.samples[row{load, subject}] {
		if figure, ok := v[m]; ok {
			all = append(all, figure)
		}
	}
	return all
}

// title is that of a subject, and of the load if the table has several.
func title(name, load string) string {
	title := subjects[slices.Index(subjectNames(), name)].title
	if load != "" {
		title += ", " + load
	}
	return title
}

// write makes the Markdown of it: the figures, the aims that were missed, and the turns that failed.
func (o *outcome) write(out io.Writer) {
	for _, l := range o.cases {
		if l.title != "" {
			fmt.Fprintf(out, "%s:\n\n", l.title)
		}
		fmt.Fprint(out, "| through |")
		for _, c := range o.columns {
			fmt.Fprintf(out, " %s |", c.title)
		}
		fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---:|", len(o.columns)))
		for _, s := range o.subjects {
			through := s.title
			if s.ours {
				through = "**" + through + "**"
			}
			fmt.Fprintf(out, "| %s |", through)
			for _, c := range o.columns {
				text := "–"
				if rounds := o.rounds(l.title, s.name, c.of); len(rounds) > 0 {
					text = c.cell(rounds)
				}
				fmt.Fprintf(out, " %s |", text)
			}
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out)
	}
	lines := o.missed()
	for _, what := range o.failed {
		lines = append(lines, "Failed: "+what+".")
	}
	for _, line := range lines {
		fmt.Fprintln(out, "- "+line)
	}
	if len(lines) > 0 {
		fmt.Fprintln(out)
	}
}

// missed lists the aims that were missed.
func (o *outcome) missed() (lines []string) {
	for _, l := range o.cases {
		for _, a := range o.aims {
			ours, limit, words := o.rounds(l.title, a.ours, a.of), a.limit, a.of.show(a.limit)
			if a.theirs != "" {
				theirs := o.rounds(l.title, a.theirs, a.of)
				if len(theirs) == 0 {
					continue
				}
				limit, words = a.limit*median(theirs), fmt.Sprintf("%.4g × %s", a.limit, title(a.theirs, ""))
			}
			bound, sign := "at most", 1.0
			if a.of.more {
				bound, sign = "at least", -1
			}
			if len(ours) > 0 && sign*median(ours) > sign*limit {
				lines = append(lines, fmt.Sprintf("Aim missed: %s: %s %s %s: %s.",
					title(a.ours, l.title), a.of.title, bound, words, a.of.show(median(ours))))
			}
		}
	}
	return lines
}

// fewestPairs is the smallest number of rounds with which an interval of 95 % confidence exists.
const fewestPairs = 6

// compare is the verdict about two builds by the ratios of their figures, paired by round, of which there are at least
// fewestPairs: the interval in which the median is. It is the sign test's (the median of ratios is below 1 as often as
// above if there is no difference), which assumes nothing about how the noise is distributed.
func compare(m *metric, ratios []float64) (low, high float64, words string) {
	sorted := slices.Sorted(slices.Values(ratios))
	n := len(sorted)
	// k ratios at each end are outside of the interval: as many as leave at least the confidence, by the binomial
	// distribution with p = 1/2.
	k, tail, term := 0, 0.0, math.Pow(0.5, float64(n))
	for ; 2*(tail+term) <= 0.05; k++ {
		tail += term
		term *= float64(n-k) / float64(k+1)
	}
	low, high = sorted[k-1], sorted[n-k]
	switch {
	case low <= 1 && high >= 1:
		words = fmt.Sprintf("no difference seen (%+.1f to %+.1f %%)", 100*(low-1), 100*(high-1))
	case high < 1 == m.more:
		words = "**worse**"
	default:
		words = "better"
	}
	return low, high, words
}

// writeVerdicts compares each subject of this build with the one of --against.
func (o *outcome) writeVerdicts(out io.Writer) {
	for _, l := range o.cases {
		for _, s := range o.subjects {
			if s.rival == "" {
				continue
			}
			fmt.Fprintf(out, "%s, this build and that of --against:\n\n"+
				"| | this | against | ratio | 95 %% interval | |\n|---|---:|---:|---:|---:|---|\n",
				title(s.rival, l.title))
			seen := map[*metric]bool{}
			for _, c := range o.columns {
				m, ours, theirs := c.of, o.samples[row{l.title, s.rival}], o.samples[row{l.title, s.name}]
				if seen[m] || m.neutral {
					continue
				}
				seen[m] = true
				var a, b, ratios []float64
				for i := range min(len(ours), len(theirs)) {
					x, ok := ours[i][m]
					y, too := theirs[i][m]
					if ok && too {
						a, b, ratios = append(a, x), append(b, y), append(ratios, x/y)
					}
				}
				if len(a) < fewestPairs {
					fmt.Fprintf(out, "| %s | | | | | %d pairs are too few |\n", m.title, len(a))
					continue
				}
				low, high, words := compare(m, ratios)
				fmt.Fprintf(out, "| %s | %s | %s | %.3f | %.3f to %.3f | %s |\n",
					m.title, m.show(median(a)), m.show(median(b)), median(ratios), low, high, words)
			}
			fmt.Fprintln(out)
		}
	}
}

// median of an even number of figures is the lower of the middle two.
func median(figures []float64) float64 {
	sorted := slices.Sorted(slices.Values(figures))
	return sorted[(len(sorted)-1)/2]
}

func unit(scale float64, format string) func(float64) string {
	return func(v float64) string { return fmt.Sprintf(format, v*scale) }
}

var milliseconds, megabytes = unit(1e3, "%.2f ms"), unit(1e-6, "%.1f MB")

// whole writes 12345 as 12,345.
func whole(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
