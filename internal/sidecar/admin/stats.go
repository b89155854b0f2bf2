package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// stats is /stats.
func (s *Server) stats(q query) answer {
	format, _ := q.get("format")
	return s.statsAs(format, q)
}

// statsPrometheus is /stats/prometheus.
func (s *Server) statsPrometheus(q query) answer { return s.statsAs("prometheus", q) }

// statsAs has the statistics that the parameters usedonly and filter select. Go's expressions are RE2's, as in Envoy;
// the error has Go's text.
func (s *Server) statsAs(format string, q query) answer {
	expression, _ := q.get("filter")
	filter, err := regexp.Compile(expression)
	if err != nil {
		return text(http.StatusBadRequest, "Invalid re2 regex: "+err.Error())
	}
	usedOnly := q.has("usedonly")
	chosen := slices.DeleteFunc(s.collect(), func(s *stat) bool {
		return usedOnly && !s.used || !filter.MatchString(s.name)
	})
	switch format {
	case "", "text":
		return text(http.StatusOK, statsText(chosen))
	case "json":
		return statsJSON(chosen)
	case "prometheus":
		return text(http.StatusOK, prometheus(chosen))
	}
	return text(http.StatusBadRequest, "usage: /stats?format=(json|prometheus|text)\n\n")
}

func statsText(stats []*stat) string {
	var b []byte
	for _, s := range stats {
		b = append(b, s.name...)
		b = append(b, ": "...)
		b = strconv.AppendUint(b, s.value, 10)
		b = append(b, '\n')
	}
	return string(b)
}

func statsJSON(stats []*stat) answer {
	type member struct {
		Name  string `json:"name"`
		Value uint64 `json:"value"`
	}
	out := struct {
		Stats []member `json:"stats"`
	}{make([]member, len(stats))}
	for i, s := range stats {
		out.Stats[i] = member{s.name, s.value}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return text(http.StatusInternalServerError, err.Error())
	}
	return answer{status: http.StatusOK, media: mediaJSON, body: b}
}

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
