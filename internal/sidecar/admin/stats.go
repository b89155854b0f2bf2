package admin

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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

// prometheus writes the text format as Envoy does: counters first, then gauges, each family under its type, {} where
// there is no label. The client library does neither, and needs a type of its own for each family.
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
		if s.tag != "" {
			b = append(b, s.tag+`="`+labelEscapes.Replace(s.id)+`"`...)
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

// stat is one statistic with Envoy's name.
type stat struct {
	name    string // with the id in it: http.ingress_http.downstream_cx_active
	family  string // without: http.downstream_cx_active
	tag, id string // Prometheus' label; empty for the only one of its family
	gauge   bool   // else a counter
	used    bool   // written since the start, as Envoy's usedonly has it
	value   uint64
}

// book collects statistics. As in Envoy, statistics of two listeners with the same name are added up.
type book map[string]*stat

func (b book) add(s stat) {
	if same := b[s.name]; same != nil {
		same.value += s.value
		same.used = same.used || s.used
		return
	}
	b[s.name] = &s
}

// pair adds the number of those in progress, and of all so far.
func (b book) pair(kind, tag, id, what string, active, total uint64) {
	of := kind + "." + id + "." + what
	b.add(stat{of + "_active", kind + "." + what + "_active", tag, id, true, total > 0, active})
	b.add(stat{of + "_total", kind + "." + what + "_total", tag, id, false, total > 0, total})
}

// collect reads the current statistics, in the order of their names. Envoy's of the server are up to five seconds old.
func (s *Server) collect() []*stat {
	b := make(book)
	var connections uint64
	for _, l := range s.Plane.Listeners() {
		open := uint64(l.Open)
		connections += open
		b.pair("listener", "envoy_listener_address", statAddress(&l), "downstream_cx", open, l.Stats.Connections)
		if l.Protocol.IsHTTP() {
			const tag = "envoy_http_conn_manager_prefix"
			b.pair("http", tag, statPrefix(&l), "downstream_cx", open, l.Stats.Connections)
			b.pair("http", tag, statPrefix(&l), "downstream_rq", uint64(l.Busy), l.Stats.Requests)
		}
	}
	failed := s.draining.hasFailed()
	for name, value := range map[string]uint64{
		"listener_manager.workers_started": 1,
		"server.live":                      flag(!failed),
		"server.state":                     flag(failed),
		"server.total_connections":         connections,
	} {
		b.add(stat{name: name, family: name, gauge: true, used: true, value: value})
	}
	return slices.SortedFunc(maps.Values(b), func(x, y *stat) int { return cmp.Compare(x.name, y.name) })
}

func flag(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}
