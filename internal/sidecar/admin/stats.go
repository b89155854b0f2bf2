package admin

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
)

// selection is the set of requested statistics.
type selection struct {
	filter
	usedOnly bool
	kind     string // "Counters", …; empty for all
	format   string
}

// parseSelection parses the parameters in Envoy's order. problem is Envoy's error text.
func parseSelection(q query) (sel selection, problem string) {
	sel.usedOnly = q.has("usedonly")
	var err error
	if sel.filter, err = parseFilter(q); err != nil {
		return sel, "Invalid re2 regex: " + err.Error()
	}
	buckets, _ := q.get("histogram_buckets")
	if !slices.Contains([]string{"", "cumulative", "disjoint", "detailed", "summary", "prometheusnative"}, buckets) {
		return sel, "usage: /stats?histogram_buckets=(cumulative|disjoint|detailed|summary|prometheusnative)\n"
	}
	switch sel.kind, _ = q.get("type"); sel.kind {
	case "", "Counters", "Gauges", "Histograms", "TextReadouts":
	case "All":
		sel.kind = ""
	default:
		return sel, "invalid &type= param"
	}
	switch sel.format, _ = q.get("format"); sel.format {
	case "", "html", "active-html", "json", "prometheus", "text":
		return sel, ""
	}
	return sel, "usage: /stats?format=(html|active-html|json|prometheus|text)\n\n"
}

// from returns the selected ones of all. There are no histograms and no text readouts.
func (sel selection) from(all []*stat) []*stat {
	return slices.DeleteFunc(all, func(s *stat) bool {
		return sel.usedOnly && !s.used || !sel.admits(s.name) || !sel.admitsKind(s)
	})
}

func (sel selection) admitsKind(s *stat) bool {
	switch sel.kind {
	case "":
		return true
	case "Counters":
		return !s.gauge
	case "Gauges":
		return s.gauge
	}
	return false
}

// stats is /stats.
func (s *Server) stats(q query) answer {
	sel, problem := parseSelection(q)
	if problem != "" {
		return text(http.StatusBadRequest, problem)
	}
	if sel.format == "prometheus" {
		return s.statsPrometheus(q) // without the type, as in Envoy
	}
	chosen := sel.from(s.collect())
	switch sel.format {
	case "json":
		return statsJSON(chosen)
	case "html", "active-html":
		return page("Envoy Admin", "<pre>\n"+escapeHTML(statsText(chosen))+"</pre>\n")
	}
	return text(http.StatusOK, statsText(chosen))
}

// statsPrometheus is /stats/prometheus. It takes no format and no type.
func (s *Server) statsPrometheus(q query) answer {
	sel, problem := parseSelection(q)
	if problem != "" {
		return text(http.StatusBadRequest, problem)
	}
	sel.kind = ""
	return text(http.StatusOK, prometheus(sel.from(s.collect())))
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
	b, err := encode(out, "")
	if err != nil {
		return text(http.StatusInternalServerError, err.Error())
	}
	return answer{status: http.StatusOK, media: mediaJSON, body: bytes.TrimSuffix(b, []byte("\n"))}
}
