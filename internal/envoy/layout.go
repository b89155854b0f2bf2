package envoy

import (
	"regexp"
	"slices"
	"strings"
)

// Infrastructure are the ports of listeners that never count, whatever their
// address: whoever talks there does not talk to the app.
var Infrastructure = []uint16{
	15020, // Istio's status server
	15021, // ENVOY_STATUS_PORT: health
	15090, // ENVOY_PROMETHEUS_PORT: scrapes
	15053, // DNS
}

// OutboundPort is where Istio's capture sends what the app says to others.
const OutboundPort = 15001

// layout is what of an Envoy's listeners counts, and what its stats can say.
type layout struct {
	ports       []uint16        // the listeners that count
	opaque      map[uint16]bool // of them, those that carry no HTTP: open is busy
	blind       map[uint16]bool // of them, those whose stats cannot tell idle from busy
	http, tcp   map[string]bool // stat prefixes that count
	hidden      []string        // stats that the matcher hides, for the log
	inboundOnly bool            // there are listeners marked inbound
}

// httpBusy and tcpBusy are the gauges that tell busy; httpTotal counts requests.
const (
	httpBusy  = "downstream_rq_active"
	httpTotal = "downstream_rq_total"
	tcpBusy   = "downstream_cx_active"
)

// statsFilter finds the stats of all listeners; which of them count is chosen
// by exact name afterwards, because a filter of 2,000 names costs more than their
// lines.
const statsFilter = `^(http\..*\.downstream_rq_(active|total)|tcp\..*\.downstream_cx_active)$`

// layOut chooses by direction and port, never by name: a user's listener may be
// called worker_api or admin-eu.
func layOut(c Config, leaveOut []uint16) layout {
	l := layout{opaque: map[uint16]bool{}, blind: map[uint16]bool{}, http: map[string]bool{}, tcp: map[string]bool{}}
	for _, listener := range c.Listeners {
		l.inboundOnly = l.inboundOnly || listener.Direction == "INBOUND"
	}
	for _, listener := range c.Listeners {
		if listener.Direction == "OUTBOUND" {
			continue
		}
		for _, address := range listener.Addresses {
			port := address.Port()
			if slices.Contains(leaveOut, port) || slices.Contains(Infrastructure, port) || port == OutboundPort && listener.Direction != "INBOUND" {
				continue
			}
			l.add(listener, port, c.Matcher)
		}
	}
	slices.Sort(l.ports)
	l.ports = slices.Compact(l.ports)
	slices.Sort(l.hidden)
	l.hidden = slices.Compact(l.hidden)
	return l
}

func (l *layout) add(listener Listener, port uint16, m *StatsMatcher) {
	l.ports = append(l.ports, port)
	switch {
	case !listener.Known:
		l.blind[port] = true
		return
	case len(listener.HTTP) == 0:
		l.opaque[port] = true
		return
	}
	for _, prefix := range listener.HTTP {
		l.http[prefix] = true
		if name := statName("http", prefix, httpBusy); !m.Shows(name) {
			l.blind[port] = true
			l.hidden = append(l.hidden, name)
		}
	}
	for _, prefix := range listener.TCP {
		l.tcp[prefix] = true
		if name := statName("tcp", prefix, tcpBusy); !m.Shows(name) {
			l.blind[port] = true
			l.hidden = append(l.hidden, name)
		}
	}
}

// statName is a name as Envoy makes it of a stat prefix.
func statName(kind, prefix, name string) string { return kind + "." + prefix + "." + name }

// matcherHint is the setting that shows what is hidden.
const matcherHint = `proxyStatsMatcher: {inclusionSuffixes: ["` + httpBusy + `", "` + tcpBusy + `"]}`

// asked says whether Envoy's stats have anything to tell that the kernel has not.
func (l *layout) asked() bool {
	for _, port := range l.ports {
		if !l.opaque[port] && !l.blind[port] {
			return true
		}
	}
	return false
}

// read adds up what counts.
func (l *layout) read(stats []Stat) (busy int, requests uint64) {
	for _, s := range stats {
		kind, rest, _ := strings.Cut(s.Name, ".")
		i := strings.LastIndexByte(rest, '.')
		if i < 0 {
			continue
		}
		prefix, name := rest[:i], rest[i+1:]
		switch {
		case kind == "http" && l.http[prefix] && name == httpBusy, kind == "tcp" && l.tcp[prefix] && name == tcpBusy:
			busy += int(max(0, s.Value))
		case kind == "http" && l.http[prefix] && name == httpTotal:
			requests += uint64(max(0, s.Value))
		}
	}
	return busy, requests
}

// istioListener are the lines of a poll that pilot-agent counts, and those that
// it leaves out (pkg/envoy/admin.go): the names are its own.
var istioKnown = regexp.MustCompile(`^listener\.(0\.0\.0\.0_(15021|15090)|admin|admin\.main_thread)\.downstream_cx_active$`)

// istioFilter is the filter of pilot-agent's poll.
const istioFilter = `downstream_cx_active$`

// istioCount counts as pilot-agent does. known is false for its "not available".
func istioCount(body []byte) (active int, known bool) {
	known = len(body) > 0
	for _, s := range ParseStats(body) {
		if strings.HasPrefix(s.Name, "listener.") && !strings.Contains(s.Name, "worker_") &&
			!strings.HasPrefix(s.Name, "listener.envoy_internal_") && !istioKnown.MatchString(s.Name) {
			active += int(s.Value)
		}
	}
	if active == -1 {
		known = false
	}
	return active, known
}
