package admin

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// prometheus writes the text format as Envoy does: counters first, then gauges,
// each family under its type, {} where there is no label. The client library
// does neither, and needs a type of its own for each family.
func prometheus(stats []*stat) string {
	stats = slices.Clone(stats)
	slices.SortStableFunc(stats, func(x, y *stat) int { // within a family in the order of names
		if x.gauge != y.gauge {
			return cmp.Compare(flag(x.gauge), flag(y.gauge))
		}
		return cmp.Compare(x.family, y.family)
	})
	var b []byte
	family := ""
	for _, s := range stats {
		name := "envoy_" + metricName(s.family)
		if s.family != family {
			family = s.family
			kind := "counter"
			if s.gauge {
				kind = "gauge"
			}
			b = append(b, "# TYPE "+name+" "+kind+"\n"...)
		}
		b = append(b, name...)
		b = append(b, '{')
		for i, t := range s.tags {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, t.name+`="`+labelEscapes.Replace(t.value)+`"`...)
		}
		b = append(b, "} "...)
		b = strconv.AppendUint(b, s.value, 10)
		b = append(b, '\n')
	}
	return string(b)
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metricName replaces characters that are invalid in Prometheus.
func metricName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, s)
}
