package envoy

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// Stats are counters and gauges by name.
type Stats map[string]int64

// ParseStats reads the `name: value` lines of /stats as text. Lines that are
// none, or whose value is no number (histograms, text), are left out. A gauge that
// has fallen below zero by an accounting error of Envoy's shows as a number near
// 2^64: it is read as the negative number it is.
func ParseStats(body []byte) Stats {
	out := make(Stats)
	for line := range bytes.Lines(body) {
		i := bytes.LastIndex(line, []byte(": "))
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(line[i+2:])), 10, 64)
		if err != nil {
			continue
		}
		value := int64(n & math.MaxInt64)
		if n > math.MaxInt64 {
			value += math.MinInt64
		}
		out[string(line[:i])] = value
	}
	return out
}
