package envoy

import (
	"bytes"
	"math"
	"strconv"
	"strings"
)

// Stats are counters and gauges by name.
type Stats map[string]int64

// ParseStats parses the `name: value` lines of /stats as text. Other lines, and those without a number (histograms,
// text), are skipped. A gauge below zero, an accounting error of Envoy's, shows as a number near 2^64: it is parsed as
// the negative number.
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
