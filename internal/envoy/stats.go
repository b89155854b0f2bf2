package envoy

import (
	"bufio"
	"bytes"
	"math"
	"strconv"
	"strings"
)

// Stat is one line of /stats as text.
type Stat struct {
	Name  string
	Value int64
}

// ParseStats reads `name: value` lines. Lines that are none, or whose value is
// no number (histograms, text), are left out. A gauge that has fallen below zero
// by an accounting error of Envoy's shows as a number near 2^64: it is read as
// the negative number it is.
func ParseStats(body []byte) []Stat {
	var out []Stat
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		i := strings.LastIndex(line, ": ")
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(line[i+2:]), 10, 64)
		if err != nil {
			continue
		}
		value := int64(n)
		if n > math.MaxInt64 {
			value = -int64(math.MaxUint64-n) - 1
		}
		out = append(out, Stat{line[:i], value})
	}
	return out
}
