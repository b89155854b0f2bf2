package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// cluster is an app, named as Istio's inbound cluster. Several listeners may share one.
type cluster struct {
	name          string
	hosts         []string // host:port
	active        uint64
	connected     uint64
	connectFailed uint64
	requests      uint64
	pending       uint64
	failed        uint64 // 5xx responses
}

func clustersOf(listeners []pipe.Listener) []*cluster {
	var out []*cluster
	byName := make(map[string]*cluster)
	for _, l := range listeners {
		name := clusterOf(&l)
		c := byName[name]
		if c == nil {
			c = &cluster{name: name}
			byName[name] = c
			out = append(out, c)
		}
		if len(c.hosts) == 0 || c.hosts[len(c.hosts)-1] != l.App {
			c.hosts = append(c.hosts, l.App)
		}
		c.active += uint64(l.AppOpen)
		c.connected += l.Stats.Connected
		c.connectFailed += l.Stats.ConnectFailed
		c.requests += l.Stats.Requests
		c.pending += uint64(l.Busy)
		c.failed += l.Stats.Responses[5]
	}
	return out
}

// noLimit is Istio's value where Envoy must have a circuit breaker.
const noLimit = "4294967295"

// clusters lists the apps. The numbers of an app with several addresses are with the first one.
func (s *Server) clusters(q query) answer {
	filter, problem := parseFilter(q)
	if problem != nil {
		return text(http.StatusBadRequest, "Invalid re2 regex") // Envoy has no details here either
	}
	if format, _ := q.get("format"); format == "json" { // in Envoy every other format is text
		return s.clustersJSON(filter)
	}
	var b strings.Builder
	for _, c := range clustersOf(s.Plane.Listeners()) {
		if !filter.admits(c.name) {
			continue
		}
		line := func(name string, value any) { fmt.Fprintf(&b, "%s::%s::%v\n", c.name, name, value) }
		line("observability_name", c.name)
		for _, priority := range []string{"default_priority", "high_priority"} {
			for _, limit := range []string{"max_connections", "max_pending_requests", "max_requests", "max_retries"} {
				line(priority+"::"+limit, noLimit)
			}
		}
		line("added_via_api", false)
		numbers := *c
		for _, host := range c.hosts {
			numbers.writeHost(func(name string, value any) { line(host+"::"+name, value) })
			numbers = cluster{}
		}
	}
	return text(http.StatusOK, b.String())
}

// writeHost writes a host's lines: its stats by name, then what is the same for every host here.
func (c *cluster) writeHost(line func(name string, value any)) {
	for _, stat := range slices.SortedFunc(slices.Values(c.stats()), func(a, b hostStat) int { return cmp.Compare(a.Name, b.Name) }) {
		line(stat.Name, stat.Value)
	}
	line("hostname", "")
	line("health_flags", "healthy")
	line("weight", 1)
	line("region", "")
	line("zone", "")
	line("sub_zone", "")
	line("canary", false)
	line("priority", 0)
	line("success_rate", -1)
	line("local_origin_success_rate", -1)
}

// stats are a host's, in the order of the JSON form.
func (c *cluster) stats() []hostStat {
	const counter, gauge = "", "GAUGE"
	return []hostStat{
		{counter, c.connectFailed, "cx_connect_fail"},
		{counter, c.connected + c.connectFailed, "cx_total"},
		{counter, c.failed, "rq_error"},
		{counter, c.requests - min(c.requests, c.failed+c.pending), "rq_success"},
		{counter, 0, "rq_timeout"},
		{counter, c.requests, "rq_total"},
		{gauge, c.active, "cx_active"},
		{gauge, c.pending, "rq_active"},
		{gauge, 0, "rq_pending_active"},
	}
}
