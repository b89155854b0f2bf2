package envoy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Infrastructure are the ports of listeners that never count, on any address: their clients are not the app's.
var Infrastructure = []uint16{istio.StatusPort, istio.HealthPort, istio.MetricsPort, istio.DNSPort}

// The stats that decide.
const (
	requestsActive    = "downstream_rq_active" // of HTTP: requests in flight, upgrades and tunnels among them
	requestsTotal     = "downstream_rq_total"
	connectionsActive = "downstream_cx_active" // of HTTP, and of a listener
	connectionsTotal  = "downstream_cx_total"  // of a listener
)

// ownRequest is a gauge in every response, unless the matcher hides it: the request for stats is itself such a request.
const ownRequest = "http.admin." + requestsActive

// adminPrefix is the stat prefix that Envoy's own admin API uses: stats of another listener under it cannot be
// distinguished from it.
const adminPrefix = "admin"

// The filter takes the stats of all listeners; which of them count is chosen by exact
// name afterwards, because a filter of 2,000 names costs more than their lines.
const (
	everyFilter = `^(http\..*\.(` + requestsActive + `|` + requestsTotal + `|` + connectionsActive + `)|` +
		`listener\..*\.(` + connectionsActive + `|` + connectionsTotal + `))$`
	listenerPrefix = "listener."
)

// evidence is the stats' information about a port's open connections.
type evidence int

const (
	requestsShown    evidence = iota // Envoy's stats show whether they are idle
	requestsPossible                 // the same, but some may not be HTTP: those are busy
	openIsBusy                       // opaque, or its stats are hidden
)

// layout is the set of an Envoy's listeners that count, with their stats. It is immutable.
type layout struct {
	ports    []uint16                // for the kernel's table, sorted
	bound    map[uint16][]netip.Addr // the addresses that go with a port
	evidence map[uint16]evidence
	closing  []uint16 // of the ports, those that are closed when the inbound listeners are

	http  map[string]bool // stat prefixes whose requests count
	mixed map[string]bool // of them, those of listeners that also carry other things

	unseen   []string        // gauges of listeners whose connections the kernel does not show
	counters map[string]bool // connection counters of the listeners that count; true: the kernel does not show them

	countsConnections bool // all of counters are shown
	countsRequests    bool // the request counters of all of http are

	unknown []string // listeners whose connections are not visible at all
	hidden  []string // stats that are missing, for the log

	inboundOnly bool            // there are listeners marked inbound: only those are drained
	usedOnly    bool            // ownRequest identifies a valid response, so unused stats may be omitted
	wanted      map[string]bool // gauges that a response must have
}

// layOut selects listeners by direction, address and port, never by name: a user's listener may be called worker_api or
// admin-eu. shown are the stats that Envoy has. With kernel false, the kernel's table does not show Envoy's sockets.
//
// Outbound listeners are the app's own requests, and do not count. Istio's gateways mark theirs as outbound, though,
// and have no others: those count.
func layOut(listeners []Listener, shown Stats, leaveOut []uint16, kernel bool) *layout {
	l := layOutOf(listeners, shown, leaveOut, kernel, false)
	if len(l.ports)+len(l.unseen)+len(l.unknown) == 0 {
		l = layOutOf(listeners, shown, leaveOut, kernel, true)
	}
	return l
}

func layOutOf(listeners []Listener, shown Stats, leaveOut []uint16, kernel, outbound bool) *layout {
	l := &layout{
		bound: map[uint16][]netip.Addr{}, evidence: map[uint16]evidence{},
		http: map[string]bool{}, mixed: map[string]bool{}, counters: map[string]bool{}, wanted: map[string]bool{},
		countsConnections: true, countsRequests: true,
	}
	users := map[string]int{} // of a stat prefix
	for _, listener := range listeners {
		l.inboundOnly = l.inboundOnly || listener.Direction == "INBOUND"
		for _, prefix := range slices.Compact(slices.Sorted(slices.Values(listener.HTTP))) {
			users[prefix]++
		}
	}
	for _, listener := range listeners {
		counts := func(port uint16) bool {
			return (outbound || listener.Direction != "OUTBOUND") && !slices.Contains(leaveOut, port) &&
				!slices.Contains(Infrastructure, port) &&
				(port != istio.OutboundPort || listener.Direction == "INBOUND")
		}
		addresses := slices.DeleteFunc(slices.Clone(listener.Addresses),
			func(a netip.AddrPort) bool { return !counts(a.Port()) })
		if !counts(0) || len(addresses) == 0 && len(listener.Addresses) > 0 {
			continue
		}
		unseen := listener.Unseen || !kernel
		l.add(listener, addresses, l.evidenceOf(listener, unseen, shown, users), unseen, shown)
	}
	l.ports = slices.Compact(slices.Sorted(slices.Values(l.ports)))
	l.hidden = slices.Compact(slices.Sorted(slices.Values(l.hidden)))
	l.want(shown)
	return l
}

// evidenceOf returns the evidence of a listener's connections, and notes hidden stats.
func (l *layout) evidenceOf(listener Listener, unseen bool, shown Stats, users map[string]int) evidence {
	t := requestsShown
	switch {
	case !listener.Known, len(listener.HTTP) == 0:
		return openIsBusy
	case listener.Opaque || unseen:
		t = requestsPossible
	}
	for _, prefix := range listener.HTTP {
		names := []string{"http." + prefix + "." + requestsActive}
		if t == requestsPossible {
			names = append(names, "http."+prefix+"."+connectionsActive)
		}
		for _, name := range names {
			if _, ok := shown[name]; !ok || prefix == adminPrefix {
				l.hidden = append(l.hidden, name)
				t = openIsBusy
			}
		}
		if t == requestsPossible && users[prefix] > 1 {
			t = openIsBusy // shared gauges do not show whose HTTP connections they count
		}
	}
	return t
}

func (l *layout) add(listener Listener, addresses []netip.AddrPort, t evidence, unseen bool, shown Stats) {
	if unseen {
		gauge := listenerPrefix + listener.Stats + "." + connectionsActive
		if _, ok := shown[gauge]; !ok {
			l.unknown = append(l.unknown, cmp.Or(listener.Name, listener.Stats))
			l.hidden = append(l.hidden, gauge)
			return
		}
		l.unseen = append(l.unseen, gauge)
	} else {
		for _, a := range addresses {
			l.ports = append(l.ports, a.Port())
			l.bound[a.Port()] = append(l.bound[a.Port()], a.Addr())
			l.evidence[a.Port()] = max(l.evidence[a.Port()], t)
			if !l.inboundOnly || listener.Direction == "INBOUND" {
				l.closing = append(l.closing, a.Port())
			}
		}
	}
	counter := listenerPrefix + listener.Stats + "." + connectionsTotal
	_, ok := shown[counter]
	l.countsConnections = l.countsConnections && ok
	l.counters[counter] = l.counters[counter] || unseen
	if t == openIsBusy {
		return
	}
	for _, prefix := range listener.HTTP {
		_, ok := shown["http."+prefix+"."+requestsTotal]
		l.countsRequests = l.countsRequests && ok
		l.http[prefix] = true
		l.mixed[prefix] = l.mixed[prefix] || t == requestsPossible
	}
}

// want chooses the gauges that identify a complete response of this Envoy.
func (l *layout) want(shown Stats) {
	if _, l.usedOnly = shown[ownRequest]; l.usedOnly {
		l.wanted[ownRequest] = true
		return
	}
	for prefix := range l.http {
		l.wanted["http."+prefix+"."+requestsActive] = true
		if l.mixed[prefix] {
			l.wanted["http."+prefix+"."+connectionsActive] = true
		}
	}
	for _, gauge := range l.unseen {
		l.wanted[gauge] = true
	}
}

// matcherHint is the setting that shows hidden stats.
const matcherHint = `proxyStatsMatcher: {inclusionSuffixes: ["` + requestsActive + `", "` + connectionsActive + `", "` +
	requestsTotal + `", "` + connectionsTotal + `"]}`

// counts reports whether a connection to a local address counts: on a machine with several addresses, other programs
// may listen on the same port.
func (l *layout) counts(local netip.AddrPort) bool {
	return slices.ContainsFunc(l.bound[local.Port()],
		func(a netip.Addr) bool { return a.IsUnspecified() || a == local.Addr() })
}

// tally is the result of a response of Envoy's stats.
type tally struct {
	requests  int // in flight
	mixedHTTP int // connections of mixed listeners that carry HTTP
	unseen    int // connections that the kernel does not show

	// Since Envoy's start, if counted: a response may have gauges only.
	counted       bool
	total         uint64 // requests
	accepted      uint64 // connections that the kernel shows or has shown
	acceptedBlind uint64 // those that it does not
}

// agrees reports whether two responses are equal in what the kernel does not show.
func (t tally) agrees(other tally) bool {
	return t.requests == other.requests && t.mixedHTTP == other.mixedHTTP && t.unseen == other.unseen &&
		(t.total == other.total || !t.counted || !other.counted)
}

// read adds up the stats that count. gauges are the names that it has used.
func (l *layout) read(stats Stats) (t tally, gauges []string) {
	for name, value := range stats {
		if blind, ok := l.counters[name]; ok {
			if blind {
				t.acceptedBlind += uint64(value)
			} else {
				t.accepted += uint64(value)
			}
			continue
		}
		rest, ok := strings.CutPrefix(name, "http.")
		i := strings.LastIndexByte(rest, '.')
		if !ok || i < 0 {
			continue
		}
		prefix := rest[:i]
		switch rest[i+1:] {
		case requestsActive:
			if l.http[prefix] {
				t.requests += int(value)
				gauges = append(gauges, name)
			}
		case connectionsActive:
			if l.mixed[prefix] {
				t.mixedHTTP += int(value)
				gauges = append(gauges, name)
			}
		case requestsTotal:
			if l.http[prefix] {
				t.total += uint64(value)
			}
		}
	}
	for _, name := range l.unseen {
		if value, ok := stats[name]; ok {
			t.unseen += int(value)
			gauges = append(gauges, name)
		}
	}
	return t, gauges
}
