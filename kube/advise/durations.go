package advise

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Durations is a distribution of how long requests take.
type Durations struct {
	sorted []time.Duration
	n      int // of observations behind it; 0: assumed
}

// maxObservations bounds an input.
const maxObservations = 10_000_000

// Observed is the distribution of observations. It keeps the slice.
func Observed(all []time.Duration) Durations {
	slices.Sort(all)
	return Durations{all, len(all)}
}

// steps is the resolution of assumed distributions.
const steps = 10_000

// Lognormal is the lognormal distribution with this median and 99th percentile, cut at longest if that is positive.
func Lognormal(p50, p99, longest time.Duration) (Durations, error) {
	if p50 <= 0 || p99 < p50 || longest > 0 && longest < p99 {
		return Durations{}, fmt.Errorf("p50 %v, p99 %v, longest %v: must be positive and in this order", p50, p99, longest)
	}
	const z99 = 2.3263478740408408
	sigma := math.Log(float64(p99)/float64(p50)) / z99
	d := Durations{sorted: make([]time.Duration, steps)}
	for i := range d.sorted {
		z := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/steps-1)
		d.sorted[i] = time.Duration(float64(p50) * math.Exp(sigma*z))
		if longest > 0 {
			d.sorted[i] = min(d.sorted[i], longest)
		}
	}
	if longest > 0 {
		d.sorted[steps-1] = longest
	}
	return d, nil
}

// Bucket is one of a cumulative histogram: Count observations took no longer than UpTo.
type Bucket struct {
	UpTo  time.Duration
	Count uint64
}

// Histogram is the distribution of a cumulative histogram in ascending order. Within a bucket, observations are at its
// upper bound: advice errs on the safe side.
func Histogram(buckets []Bucket) (Durations, error) {
	if len(buckets) == 0 || buckets[len(buckets)-1].Count == 0 {
		return Durations{}, fmt.Errorf("the histogram is empty")
	}
	all := buckets[len(buckets)-1].Count
	d := Durations{n: int(min(all, math.MaxInt32)), sorted: make([]time.Duration, 0, steps)}
	i := 0
	for k := range uint64(steps) {
		rank := uint64(math.Ceil((float64(k) + 1) / steps * float64(all)))
		for i+1 < len(buckets) && buckets[i].Count < rank {
			i++
		}
		d.sorted = append(d.sorted, buckets[i].UpTo)
	}
	return d, nil
}

// ReadDurations reads one duration per line, such as 250ms or 1.5s; a number without a unit is seconds. Empty lines and
// lines that begin with # are skipped.
func ReadDurations(r io.Reader) (Durations, error) {
	var all []time.Duration
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if _, err := strconv.ParseFloat(text, 64); err == nil {
			text += "s"
		}
		d, err := time.ParseDuration(text)
		switch {
		case err != nil || d < 0:
			return Durations{}, fmt.Errorf("line %d: %.40q must be a duration such as 250ms, or seconds", n, text)
		case len(all) == maxObservations:
			return Durations{}, fmt.Errorf("line %d: more than %d durations", n, maxObservations)
		}
		all = append(all, d)
	}
	if err := lines.Err(); err != nil {
		return Durations{}, err
	}
	if len(all) == 0 {
		return Durations{}, fmt.Errorf("there is no duration")
	}
	return Observed(all), nil
}

// Count is the number of observations, 0 for an assumed distribution.
func (d Durations) Count() int { return d.n }

// Longest is the longest duration.
func (d Durations) Longest() time.Duration { return d.sorted[len(d.sorted)-1] }

// Quantile is the duration that the share q of them does not exceed.
func (d Durations) Quantile(q float64) time.Duration {
	return d.sorted[min(max(int(math.Ceil(q*float64(len(d.sorted))))-1, 0), len(d.sorted)-1)]
}
