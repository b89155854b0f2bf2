package admin

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

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
		if l.Protocol != pipe.TCP {
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
