package envoy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func at(addresses ...string) (out []netip.AddrPort) {
	for _, a := range addresses {
		out = append(out, netip.MustParseAddrPort(a))
	}
	return out
}

// show returns Envoy's stats of listeners when no matcher hides any.
func show(listeners ...Listener) Stats {
	shown := Stats{ownRequest: 1}
	for _, l := range listeners {
		shown["listener."+l.Stats+".downstream_cx_active"], shown["listener."+l.Stats+".downstream_cx_total"] = 0, 0
		for _, prefix := range l.HTTP {
			for _, name := range []string{"rq_active", "rq_total", "cx_active"} {
				shown["http."+prefix+".downstream_"+name] = 0
			}
		}
	}
	return shown
}

func TestLayout(t *testing.T) {
	inbound := Listener{Name: "in", Addresses: at("0.0.0.0:15006"), Direction: "INBOUND", HTTP: []string{"in"}, Known: true, Stats: "0.0.0.0_15006"}
	change := func(f func(*Listener)) Listener {
		l := inbound
		f(&l)
		return l
	}
	hide := func(names ...string) func(Stats) {
		return func(s Stats) {
			for _, name := range names {
				delete(s, name)
			}
		}
	}
	on := func(direction, address string) Listener {
		return change(func(l *Listener) { l.Direction, l.Addresses = direction, at(address) })
	}
	mixed := change(func(l *Listener) { l.Opaque = true })
	quic := change(func(l *Listener) { l.Addresses, l.Unseen = nil, true })
	const requests, connections = "http.in.downstream_rq_active", "http.in.downstream_cx_active"
	const open = "listener.0.0.0.0_15006.downstream_cx_active"
	type ports = []uint16
	type list = []string
	own, in := ports{15006}, list{"in"}
	for name, tt := range map[string]struct {
		listeners []Listener
		leaveOut  ports
		hide      func(Stats)
		blind     bool // the kernel's table does not show Envoy

		ports    ports
		evidence evidence // of the first port
		http     list
		only     bool
		closing  ports
		unseen   int
		unknown  list
		hidden   list
	}{
		"inbound": {listeners: []Listener{inbound}, ports: own, http: in, only: true, closing: own},
		"a gateway says no direction": {listeners: []Listener{on("UNSPECIFIED", "0.0.0.0:8443")},
			ports: ports{8443}, http: in, closing: ports{8443}},
		"names do not matter": {listeners: []Listener{
			change(func(l *Listener) { l.Name, l.Addresses = "worker_api", at("0.0.0.0:1") }),
			change(func(l *Listener) { l.Name, l.Addresses, l.HTTP = "admin-eu", at("[::]:2"), list{"admin-eu"} }),
		}, ports: ports{1, 2}, http: list{"admin-eu", "in"}, only: true, closing: ports{1, 2}},
		"outbound does not count": {
			listeners: []Listener{inbound, on("OUTBOUND", "0.0.0.0:80"), on("UNSPECIFIED", "0.0.0.0:15001")},
			ports:     own, http: in, only: true, closing: own},
		"an Istio gateway's listeners are outbound, and count": {
			listeners: []Listener{on("OUTBOUND", "0.0.0.0:8080"), on("UNSPECIFIED", "0.0.0.0:15021")},
			ports:     ports{8080}, http: in, closing: ports{8080}},
		"health and scrapes do not count, IPv4 or IPv6": {
			listeners: []Listener{change(func(l *Listener) { l.Addresses = at("0.0.0.0:15021", "[::]:15021", "[::]:15090") })},
			only:      true},
		"left out": {listeners: []Listener{inbound}, leaveOut: own, only: true},
		"no direction: counts in addition to inbound, but is not closed with it": {
			listeners: []Listener{inbound, on("UNSPECIFIED", "0.0.0.0:80")},
			ports:     ports{80, 15006}, http: in, only: true, closing: own},
		"opaque": {listeners: []Listener{change(func(l *Listener) { l.HTTP, l.Opaque = nil, true })},
			ports: own, evidence: openIsBusy, only: true, closing: own},
		"HTTP and others": {listeners: []Listener{mixed},
			ports: own, evidence: requestsPossible, http: in, only: true, closing: own},
		"HTTP and others, under a name that another uses": {
			listeners: []Listener{mixed, change(func(l *Listener) { l.Direction = "OUTBOUND" })},
			ports:     own, evidence: openIsBusy, only: true, closing: own},
		"the name of Envoy's own admin API": {
			listeners: []Listener{change(func(l *Listener) { l.HTTP = list{"admin"} })},
			ports:     own, evidence: openIsBusy, only: true, closing: own, hidden: list{ownRequest}},
		"hidden": {listeners: []Listener{inbound},
			hide: hide(requests), ports: own, evidence: openIsBusy, only: true, closing: own, hidden: list{requests}},
		"hidden in part": {listeners: []Listener{mixed},
			hide: hide(connections), ports: own, evidence: openIsBusy, only: true, closing: own, hidden: list{connections}},
		"of HTTP alone, connections need not be shown": {listeners: []Listener{inbound},
			hide: hide(connections, open), ports: own, http: in, only: true, closing: own},
		"addresses alone": {listeners: []Listener{{Addresses: at("0.0.0.0:80"), Direction: "UNSPECIFIED"}},
			ports: ports{80}, evidence: openIsBusy, closing: ports{80}},
		"QUIC":         {listeners: []Listener{quic}, http: in, only: true, unseen: 1},
		"QUIC, hidden": {listeners: []Listener{quic}, hide: hide(open), only: true, unknown: in, hidden: list{open}},
		"no kernel":    {listeners: []Listener{inbound}, blind: true, http: in, only: true, unseen: 1},
	} {
		t.Run(name, func(t *testing.T) {
			shown := show(tt.listeners...)
			if tt.hide != nil {
				tt.hide(shown)
			}
			l := layOut(tt.listeners, shown, tt.leaveOut, !tt.blind)
			var http []string
			for prefix := range l.http {
				http = append(http, prefix)
			}
			slices.Sort(http)
			check := func(what string, got, want any) {
				t.Helper()
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v; want %v", what, got, want)
				}
			}
			check("ports", l.ports, tt.ports)
			check("prefixes", http, tt.http)
			check("unseen", len(l.unseen), tt.unseen)
			check("unknown", l.unknown, tt.unknown)
			check("hidden", l.hidden, tt.hidden)
			check("inbound only", l.inboundOnly, tt.only)
			check("closing", l.closing, tt.closing)
			if len(l.ports) > 0 {
				check("evidence", l.evidence[l.ports[0]], tt.evidence)
			}
		})
	}
}

// On a machine with several addresses, others may listen on the same port.
func TestCounts(t *testing.T) {
	l := layOut([]Listener{
		{Addresses: at("127.0.0.2:80", "[::1]:80")}, {Addresses: at("0.0.0.0:81")}, {Addresses: at("[::]:82")},
	}, nil, nil, true)
	for local, want := range map[string]bool{
		"127.0.0.2:80": true, "127.0.0.1:80": false, "[::1]:80": true, "[::2]:80": false,
		"10.0.0.1:81": true, "10.0.0.1:82": true, "[2001:db8::1]:82": true, "10.0.0.1:83": false,
	} {
		if got := l.counts(netip.MustParseAddrPort(local)); got != want {
			t.Errorf("%s: %v", local, got)
		}
	}
}

func TestDumpedListener(t *testing.T) {
	const hcm = `{"filters":[{"typed_config":{"@type":"` + typeHTTP + `","stat_prefix":"inbound_[::]_80;"}}]}`
	const tcp = `{"filters":[{"typed_config":{"@type":"x/TcpProxy","stat_prefix":"t"}}]}`
	bound := map[string][]netip.AddrPort{"chosen": at("127.0.0.1:40000")}
	for name, tt := range map[string]struct {
		dump string
		want Listener
		none bool
	}{
		"HTTP on IPv6, whose colons Envoy replaces": {
			dump: `{"name":"a","traffic_direction":"INBOUND","address":{"socket_address":{"address":"::","port_value":80}},"filter_chains":[` + hcm + `]}`,
			want: Listener{Name: "a", Direction: "INBOUND", Addresses: at("[::]:80"), Stats: "[__]_80", HTTP: []string{"inbound_[__]_80;"}, Known: true},
		},
		"a stat prefix of its own": {
			dump: `{"stat_prefix":"s:1","address":{"socket_address":{"address":"0.0.0.0","port_value":80}},"filter_chains":[` + tcp + `]}`,
			want: Listener{Direction: "UNSPECIFIED", Addresses: at("0.0.0.0:80"), Stats: "s_1", Opaque: true, Known: true},
		},
		"a chain for HTTP, another by default": {
			dump: `{"address":{"socket_address":{"address":"1.2.3.4","port_value":80}},"filter_chains":[` + hcm + `],"default_filter_chain":` + tcp + `}`,
			want: Listener{Direction: "UNSPECIFIED", Addresses: at("1.2.3.4:80"), Stats: "1.2.3.4_80", HTTP: []string{"inbound_[__]_80;"}, Opaque: true, Known: true},
		},
		"more addresses": {
			dump: `{"address":{"socket_address":{"address":"0.0.0.0","port_value":80}},"additional_addresses":[{"address":{"socket_address":{"address":"::","port_value":81}}}],"filter_chains":[` + hcm + `]}`,
			want: Listener{Direction: "UNSPECIFIED", Addresses: at("0.0.0.0:80", "[::]:81"), Stats: "0.0.0.0_80", HTTP: []string{"inbound_[__]_80;"}, Known: true},
		},
		"a port that the kernel has chosen": {
			dump: `{"name":"chosen","address":{"socket_address":{"address":"127.0.0.1","port_value":0}},"filter_chains":[` + hcm + `]}`,
			want: Listener{Name: "chosen", Direction: "UNSPECIFIED", Addresses: at("127.0.0.1:40000"), Stats: "127.0.0.1_0", HTTP: []string{"inbound_[__]_80;"}, Known: true},
		},
		"an address in IPv6's form of IPv4": {
			dump: `{"address":{"socket_address":{"address":"::ffff:1.2.3.4","port_value":80}}}`,
			want: Listener{Direction: "UNSPECIFIED", Addresses: at("1.2.3.4:80"), Stats: "[__ffff_1.2.3.4]_80", Known: true},
		},
		"a unix socket": {
			dump: `{"address":{"pipe":{"path":"/run/s"}},"filter_chains":[` + hcm + `]}`,
			want: Listener{Direction: "UNSPECIFIED", Stats: "/run/s", HTTP: []string{"inbound_[__]_80;"}, Known: true, Unseen: true},
		},
		"transparent": {
			dump: `{"transparent":true,"address":{"socket_address":{"address":"0.0.0.0","port_value":15006}},"filter_chains":[` + hcm + `]}`,
			want: Listener{Direction: "UNSPECIFIED", Addresses: at("0.0.0.0:15006"), Stats: "0.0.0.0_15006", HTTP: []string{"inbound_[__]_80;"}, Known: true, Unseen: true},
		},
		"QUIC": {
			dump: `{"address":{"socket_address":{"protocol":"UDP","address":"0.0.0.0","port_value":443}},"filter_chains":[` + hcm + `]}`,
			want: Listener{Direction: "UNSPECIFIED", Stats: "0.0.0.0_443", HTTP: []string{"inbound_[__]_80;"}, Known: true, Unseen: true},
		},
		"datagrams": {dump: `{"address":{"socket_address":{"protocol":"UDP","address":"0.0.0.0","port_value":53}}}`, none: true},
		"internal":  {dump: `{"internal_listener":{},"filter_chains":[` + hcm + `]}`, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			var d dumpedListener
			must.Do(t, json.NewDecoder(strings.NewReader(tt.dump)).Decode(&d))
			got, ok := d.listener(bound)
			if ok == tt.none {
				t.Fatalf("counts: %v", ok)
			}
			if ok && !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v; want\n%+v", got, tt.want)
			}
		})
	}
}

// An Envoy that hides its configuration has its addresses; one that is slow is read later. Its internal listeners have
// no connections of their own.
func TestListenersWithoutConfigDump(t *testing.T) {
	for name, tt := range map[string]struct {
		dump func(w http.ResponseWriter, r *http.Request)
		want int // listeners; -1: an error
	}{
		"hidden": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, 1},
		"slow":   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/config_dump" {
					tt.dump(w, r)
					return
				}
				fmt.Fprint(w, `{"listener_statuses": [
					{"name": "virtualInbound", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 15006}}},
					{"name": "connect_originate", "local_address": {"envoy_internal_address": {"server_listener_name": "connect_originate"}}}]}`)
			}))
			defer server.Close()
			a, err := NewAdmin(strings.TrimPrefix(server.URL, "http://"))
			must.Do(t, err)
			limit := map[bool]time.Duration{true: 300 * time.Millisecond, false: patience}[tt.want < 0]
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			got, err := a.Listeners(ctx)
			if (err != nil) != (tt.want < 0) || err == nil && len(got) != tt.want {
				t.Errorf("%+v, %v; want %d", got, err, tt.want)
			}
		})
	}
}

func TestParseStats(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	for name, tt := range map[string]struct {
		body string
		want Stats
	}{
		"none":            {"", Stats{}},
		"plain":           {"a.b: 1\nc: 0\n", Stats{"a.b": 1, "c": 0}},
		"no end of line":  {"a: 1", Stats{"a": 1}},
		"separator twice": {"http.a: b.downstream_rq_active: 3\n", Stats{"http.a: b.downstream_rq_active": 3}},
		"under-run":       {"a: 18446744073709551615\nb: 18446744073709551611\n", Stats{"a": -1, "b": -5}},
		"text":            {"a: -1\nb: P0(nan,1)\nc: \"x\"\n<html>\n\nd:1\n", Stats{}},
		"long line":       {long + ": 1\na: 2\n", Stats{long: 1, "a": 2}},
	} {
		if got := ParseStats([]byte(tt.body)); !maps.Equal(got, tt.want) {
			t.Errorf("%s: %v; want %v", name, got, tt.want)
		}
	}
}

// The edges of pilot-agent's count, its faults included.
func TestIstioCount(t *testing.T) {
	for name, tt := range map[string]struct {
		body   string
		active int
		known  bool
	}{
		"nothing is matched":       {"", 0, false},
		"only http.* is matched":   {"http.inbound_0.0.0.0_8080;.downstream_cx_active: 3\n", 0, true},
		"inbound and outbound":     {"listener.0.0.0.0_15006.downstream_cx_active: 2\nlistener.0.0.0.0_15001.downstream_cx_active: 3\n", 5, true},
		"workers":                  {"listener.0.0.0.0_15006.worker_0.downstream_cx_active: 2\n", 0, true},
		"a user's worker_":         {"listener.worker_api.downstream_cx_active: 2\n", 0, true},
		"ambient":                  {"listener.envoy_internal_main_internal.downstream_cx_active: 2\n", 0, true},
		"known listeners":          {"listener.0.0.0.0_15021.downstream_cx_active: 1\nlistener.0.0.0.0_15090.downstream_cx_active: 1\nlistener.admin.downstream_cx_active: 1\nlistener.admin.main_thread.downstream_cx_active: 1\n", 0, true},
		"known listeners, IPv6":    {"listener.[__]_15021.downstream_cx_active: 1\nlistener.[__]_15090.downstream_cx_active: 1\n", 2, true},
		"a user's admin-eu":        {"listener.admin-eu.downstream_cx_active: 1\n", 1, true},
		"under-run":                {"listener.a.downstream_cx_active: 18446744073709551615\n", -1, false},
		"under-run, another's one": {"listener.a.downstream_cx_active: 18446744073709551615\nlistener.b.downstream_cx_active: 1\n", 0, true},
		"under-run by three":       {"listener.a.downstream_cx_active: 18446744073709551613\n", -3, true},
		"-1 as text":               {"listener.a.downstream_cx_active: -1\n", 0, true},
		"garbage":                  {"<html>\n", 0, true},
	} {
		if active, known := IstioCount([]byte(tt.body)); active != tt.active || known != tt.known {
			t.Errorf("%s: %d, %v; want %d, %v", name, active, known, tt.active, tt.known)
		}
	}
}
