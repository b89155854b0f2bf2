package admin

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
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
