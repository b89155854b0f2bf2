package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// confidence is that of the interval that a verdict is read from.
const confidence = 0.95

// fewestPairs is the smallest number of rounds with which an interval of this confidence exists.
const fewestPairs = 6

// verdict compares two builds by the ratios of their figures, paired by round: the median, and the interval in which it
// is. The interval is the sign test's (the median of ratios is below 1 as often as above if there is no difference),
// which assumes nothing about how the noise is distributed.
type verdict struct{ ratio, low, high float64 }

// compare is of at least fewestPairs ratios.
func compare(ratios []float64) verdict {
	sorted := slices.Sorted(slices.Values(ratios))
	n := len(sorted)
	// k ratios at each end are outside of the interval: as many as leave at least the confidence, by the binomial
	// distribution with p = 1/2.
	k, tail, term := 0, 0.0, math.Pow(0.5, float64(n))
	for i := 0; 2*(tail+term) <= 1-confidence; i++ {
		tail += term
		k = i + 1
		term *= float64(n-i) / float64(i+1)
	}
	k = max(k, 1)
	return verdict{ratio: median(ratios), low: sorted[k-1], high: sorted[n-k]}
}

// words are the verdict about a metric.
func (v verdict) words(m *metric) string {
	if v.low <= 1 && v.high >= 1 {
		return fmt.Sprintf("no difference seen (%+.1f to %+.1f %%)", 100*(v.low-1), 100*(v.high-1))
	}
	if v.ratio < 1 == m.more {
		return "**worse**"
	}
	return "better"
}

// writeVerdicts compares each subject of this build with the one of --against.
func (o *outcome) writeVerdicts(out io.Writer) {
	for _, kase := range o.cases {
		for _, rival := range o.subjects {
			if rival.rival == "" {
				continue
			}
			fmt.Fprintf(out, "%s, this build and that of --against:\n\n"+
				"| | this | against | ratio | %.0f %% interval | |\n|---|---:|---:|---:|---:|---|\n",
				o.title(rival.rival, kase), 100*confidence)
			seen := map[*metric]bool{}
			for _, c := range o.columns {
				if seen[c.of] || c.of.neutral {
					continue
				}
				seen[c.of] = true
				ours, theirs := o.samples[kase][rival.rival], o.samples[kase][rival.name]
				var a, b, ratios []float64
				for i := range min(len(ours), len(theirs)) {
					x, ok := ours[i][c.of]
					y, too := theirs[i][c.of]
					if ok && too {
						a, b = append(a, x), append(b, y)
						if x == y { // two zeros, of requests lost, are no difference
							ratios = append(ratios, 1)
						} else {
							ratios = append(ratios, x/y)
						}
					}
				}
				if len(a) == 0 {
					continue
				}
				text, interval, ratio := fmt.Sprintf("%d pairs are too few", len(a)), "–", median(ratios)
				if len(a) >= fewestPairs {
					v := compare(ratios)
					text = v.words(c.of)
					interval = fmt.Sprintf("%.3f to %.3f", v.low, v.high)
				}
				fmt.Fprintf(out, "| %s | %s | %s | %.3f | %s | %s |\n", c.of.title, c.of.show(median(a)), c.of.show(median(b)),
					ratio, interval, text)
			}
			fmt.Fprintln(out)
		}
	}
}
