package admin

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
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

// stat is one statistic with Envoy's name.
type stat struct {
	name   string // with the tags in it: http.ingress_http.downstream_rq_2xx
	family string // without: http.downstream_rq_xx
	tags   []tag  // in Envoy's order
	gauge  bool   // else a counter
	used   bool   // written since the start, as Envoy's usedonly has it
	value  uint64
}

type tag struct{ name, value string }

// scope is the subject of a group of statistics.
type scope struct {
	kind string // "listener", "http", "cluster", …
	tag  string // name of the tag for id; empty when id is no tag
	id   string // empty for the only one of its kind
}

var admin = scope{kind: "listener.admin"}

func (s scope) family(name string) string { return s.kind + "." + name }

func (s scope) name(name string) string {
	if s.id == "" {
		return s.kind + "." + name
	}
	return s.kind + "." + s.id + "." + name
}

func (s scope) tags() []tag {
	if s.tag == "" {
		return nil
	}
	return []tag{{s.tag, s.id}}
}

// book collects statistics. As in Envoy, statistics of two listeners with the same name are added up.
type book struct {
	all  []*stat
	seen map[string]int
}

func (b *book) add(s *stat) {
	if i, found := b.seen[s.name]; found {
		b.all[i].value += s.value
		b.all[i].used = b.all[i].used || s.used
		return
	}
	b.seen[s.name] = len(b.all)
	b.all = append(b.all, s)
}

// counter is used when it is not zero.
func (b *book) counter(s scope, name string, value uint64) {
	b.add(&stat{s.name(name), s.family(name), s.tags(), false, value > 0, value})
}

func (b *book) gauge(s scope, name string, value uint64, used bool) {
	b.add(&stat{s.name(name), s.family(name), s.tags(), true, used, value})
}

// classes are the responses by hundreds of the status.
func (b *book) classes(s scope, responses [6]uint64) {
	for i := 1; i < len(responses); i++ {
		class := strconv.Itoa(i)
		b.add(&stat{
			name:   s.name("downstream_rq_" + class + "xx"),
			family: s.family("downstream_rq_xx"),
			tags:   append([]tag{{"envoy_response_code_class", class}}, s.tags()...),
			used:   responses[i] > 0,
			value:  responses[i],
		})
	}
}

// connections are common to listeners and their HTTP.
func (b *book) connections(s scope, active, total uint64) {
	b.gauge(s, "downstream_cx_active", active, total > 0)
	b.counter(s, "downstream_cx_destroy", total-min(total, active))
	b.counter(s, "downstream_cx_total", total)
}

func (b *book) requests(s scope, active, total uint64, responses [6]uint64) {
	b.gauge(s, "downstream_rq_active", active, total > 0)
	b.counter(s, "downstream_rq_total", total)
	b.classes(s, responses)
}

// collect reads the current statistics, in the order of their names.
func (s *Server) collect() []*stat {
	b := &book{seen: make(map[string]int)}
	listeners := s.Plane.Listeners()
	var connections uint64
	for i := range listeners {
		l := &listeners[i]
		open := uint64(l.Open)
		connections += open
		b.connections(scope{"listener", "envoy_listener_address", statAddress(l)}, open, l.Stats.Connections)
		if l.Protocol.IsHTTP() {
			http := scope{"http", "envoy_http_conn_manager_prefix", statPrefix(l)}
			b.connections(http, open, l.Stats.Connections)
			b.requests(http, uint64(l.Busy), l.Stats.Requests, l.Stats.Responses)
		}
		app := scope{"cluster", "envoy_cluster_name", clusterOf(l)} // several listeners may share one
		b.gauge(app, "upstream_cx_active", uint64(l.AppOpen), l.Stats.Connected > 0)
		b.counter(app, "upstream_cx_connect_fail", l.Stats.ConnectFailed)
		b.counter(app, "upstream_cx_total", l.Stats.Connected+l.Stats.ConnectFailed)
		b.gauge(app, "upstream_rq_active", uint64(l.Busy), l.Stats.Requests > 0)
		b.counter(app, "upstream_rq_total", l.Stats.Requests)
	}
	s.collectOwn(b)
	s.collectServer(b, uint64(len(listeners)), connections)
	slices.SortFunc(b.all, func(x, y *stat) int { return cmp.Compare(x.name, y.name) })
	return b.all
}

// collectOwn is the API's own traffic. Tools that count connections ignore the name admin.
func (s *Server) collectOwn(b *book) {
	http := scope{"http", "envoy_http_conn_manager_prefix", "admin"}
	gone := s.own.gone.Load() // before the others, so that nothing becomes negative
	var responses [6]uint64
	var ended uint64
	for i := range responses {
		responses[i] = s.own.ended[i].Load()
		ended += responses[i]
	}
	total, begun := s.own.connections.Load(), s.own.begun.Load()
	b.connections(admin, total-gone, total)
	b.connections(http, total-gone, total)
	b.requests(http, begun-ended, begun, responses)
}

// collectServer has the server's own statistics. Envoy's are up to five seconds old; these are current.
func (s *Server) collectServer(b *book, listeners, connections uint64) {
	failed, stopped := s.draining.state()
	manager := scope{kind: "listener_manager"}
	b.counter(manager, "listener_stopped", listeners*flag(stopped))
	b.gauge(manager, "total_listeners_active", listeners, true) // closed ones too, as in Envoy
	b.gauge(manager, "workers_started", 1, true)

	server := scope{kind: "server"}
	b.gauge(server, "live", flag(!failed), true)
	b.gauge(server, "state", flag(failed), true)
	b.gauge(server, "total_connections", connections, true)
	b.gauge(server, "uptime", uint64(time.Since(s.began).Seconds()), true)
}

func flag(on bool) uint64 {
	if on {
		return 1
	}
	return 0
}
