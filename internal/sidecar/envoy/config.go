package envoy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Listener is one of Envoy's listeners, with the properties that decide what counts.
type Listener struct {
	Name      string
	Addresses []netip.AddrPort // as they are bound
	Direction string           // INBOUND, OUTBOUND, or UNSPECIFIED
	Stats     string           // its name in its own stats: listener.<Stats>.downstream_…

	// HTTP are the stat prefixes of its HTTP connection managers, as in the names of stats. Opaque is true when it has
	// a filter chain without one.
	HTTP   []string
	Opaque bool
	Known  bool // HTTP and Opaque are valid

	// Unseen is true when the kernel's table of TCP sockets does not show its connections by port: QUIC, a unix socket,
	// a transparent listener.
	Unseen bool
}

// typeHTTP is the filter for HTTP.
const typeHTTP = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// statName is the name that Envoy derives from an address or a prefix: colons separate names from values.
func statName(s string) string { return strings.ReplaceAll(s, ":", "_") }

// dumpedAddress is envoy.config.core.v3.Address.
type dumpedAddress struct {
	SocketAddress *struct {
		Protocol string `json:"protocol"`
		Address  string `json:"address"`
		Port     uint16 `json:"port_value"`
	} `json:"socket_address"`
	Pipe *struct {
		Path string `json:"path"`
	} `json:"pipe"`
	Internal json.RawMessage `json:"envoy_internal_address"`
}

func (d dumpedAddress) String() string {
	switch {
	case d.Pipe != nil:
		return d.Pipe.Path
	case d.SocketAddress == nil:
		return ""
	}
	return net.JoinHostPort(d.SocketAddress.Address, strconv.Itoa(int(d.SocketAddress.Port)))
}

// bound is its bound address; false if that is not an IP address, or for a port that the kernel has chosen.
func (d dumpedAddress) bound() (netip.AddrPort, bool) {
	if d.SocketAddress == nil || d.SocketAddress.Port == 0 {
		return netip.AddrPort{}, false
	}
	addr, err := netip.ParseAddr(d.SocketAddress.Address)
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), d.SocketAddress.Port), err == nil
}

func (d dumpedAddress) isUDP() bool {
	return d.SocketAddress != nil && d.SocketAddress.Protocol == "UDP"
}

// dumpedListener is envoy.config.listener.v3.Listener.
type dumpedListener struct {
	Name        string          `json:"name"`
	StatPrefix  string          `json:"stat_prefix"`
	Address     dumpedAddress   `json:"address"`
	More        []moreAddresses `json:"additional_addresses"`
	Direction   string          `json:"traffic_direction"`
	Transparent bool            `json:"transparent"`
	Internal    json.RawMessage `json:"internal_listener"`
	Chains      []dumpedChain   `json:"filter_chains"`
	Default     *dumpedChain    `json:"default_filter_chain"`
}

type moreAddresses struct {
	Address dumpedAddress `json:"address"`
}

type dumpedChain struct {
	Filters []struct {
		Config struct {
			Type       string `json:"@type"`
			StatPrefix string `json:"stat_prefix"`
		} `json:"typed_config"`
	} `json:"filters"`
}

// listener converts it. It returns false when it has no connections of its own. bound has the addresses of listeners
// whose ports the kernel has chosen.
func (d *dumpedListener) listener(bound map[string][]netip.AddrPort) (Listener, bool) {
	l := Listener{Name: d.Name, Direction: cmp.Or(d.Direction, "UNSPECIFIED"), Known: true, Unseen: d.Transparent}
	l.Stats = cmp.Or(statName(d.StatPrefix), statName(d.Address.String()))
	chains := d.Chains
	if d.Default != nil {
		chains = append(chains, *d.Default)
	}
	for _, chain := range chains {
		speaksHTTP := false
		for _, filter := range chain.Filters {
			if filter.Config.Type == typeHTTP {
				speaksHTTP = true
				l.HTTP = append(l.HTTP, statName(filter.Config.StatPrefix))
			}
		}
		l.Opaque = l.Opaque || !speaksHTTP
	}
	if d.Internal != nil || d.Address.Internal != nil {
		return l, false // its connections arrive at another listener first
	}
	if d.Address.isUDP() {
		l.Unseen = true
		return l, len(l.HTTP) > 0 // plain datagrams have no connections
	}
	for _, a := range append([]moreAddresses{{d.Address}}, d.More...) {
		if at, ok := a.Address.bound(); ok {
			l.Addresses = append(l.Addresses, at)
		} else if chosen := bound[d.Name]; len(chosen) > 0 {
			l.Addresses = append(l.Addresses, chosen...)
		} else {
			l.Unseen = true
		}
	}
	return l, true
}

// Listeners reads the listeners. Those that Envoy does not show (no config_dump) have their addresses only.
func (a *Admin) Listeners(ctx context.Context) ([]Listener, error) {
	bound, plain, listErr := a.list(ctx)
	dumped, err := a.dump(ctx, bound)
	if err == nil {
		return dumped, nil
	}
	if listErr != nil || ctx.Err() != nil { // a slow Envoy is not one that hides its configuration
		return nil, errors.Join(err, listErr)
	}
	return plain, nil
}

func (a *Admin) dump(ctx context.Context, bound map[string][]netip.AddrPort) (listeners []Listener, err error) {
	for _, part := range []string{"static_listeners", "dynamic_listeners"} {
		b, err := a.call(ctx, http.MethodGet, "/config_dump?resource="+part)
		if err != nil {
			return nil, err
		}
		type state struct {
			Listener *dumpedListener `json:"listener"`
		}
		var dump struct {
			Configs []struct {
				Listener *dumpedListener `json:"listener"` // static
				Active   state           `json:"active_state"`
				Warming  state           `json:"warming_state"`
				Draining state           `json:"draining_state"`
			} `json:"configs"`
		}
		if err := json.Unmarshal(b, &dump); err != nil {
			return nil, fmt.Errorf("envoy's admin at %s: read its configuration: %w", a.address, err)
		}
		for _, c := range dump.Configs {
			for _, d := range []*dumpedListener{c.Listener, c.Active.Listener, c.Warming.Listener, c.Draining.Listener} {
				if d == nil {
					continue
				}
				if l, ok := d.listener(bound); ok {
					listeners = append(listeners, l)
				}
			}
		}
	}
	return listeners, nil
}

// list reads the addresses to which the listeners are bound.
func (a *Admin) list(ctx context.Context) (bound map[string][]netip.AddrPort, listeners []Listener, err error) {
	b, err := a.call(ctx, http.MethodGet, "/listeners?format=json")
	if err != nil {
		return nil, nil, err
	}
	var list struct {
		Statuses []struct {
			Name    string          `json:"name"`
			Address dumpedAddress   `json:"local_address"`
			More    []dumpedAddress `json:"additional_local_addresses"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, nil, fmt.Errorf("envoy's admin at %s: read its listeners: %w", a.address, err)
	}
	bound = make(map[string][]netip.AddrPort)
	for _, s := range list.Statuses {
		if s.Address.Internal != nil {
			continue
		}
		l := Listener{Name: s.Name, Direction: "UNSPECIFIED", Stats: statName(s.Address.String())}
		for _, address := range append([]dumpedAddress{s.Address}, s.More...) {
			if at, ok := address.bound(); ok {
				l.Addresses = append(l.Addresses, at)
			} else {
				l.Unseen = true
			}
			l.Unseen = l.Unseen || address.isUDP()
		}
		bound[s.Name] = l.Addresses
		listeners = append(listeners, l)
	}
	return bound, listeners, nil
}

// Stats are counters and gauges by name.
type Stats map[string]int64

// ParseStats parses the `name: value` lines of /stats as text. Other lines, and those without a number (histograms,
// text), are skipped. A gauge below zero, an accounting error of Envoy's, shows as a number near 2^64: it is parsed as
// the negative number.
func ParseStats(body []byte) Stats {
	out := make(Stats)
	for line := range bytes.Lines(body) {
		i := bytes.LastIndex(line, []byte(": "))
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(line[i+2:])), 10, 64)
		if err != nil {
			continue
		}
		value := int64(n & math.MaxInt64)
		if n > math.MaxInt64 {
			value += math.MinInt64
		}
		out[string(line[:i])] = value
	}
	return out
}

// Metrics are Envoy's own in Prometheus' text format, those that were ever written. In a large mesh they are megabytes,
// so they are streamed.
func (p *Plane) Metrics(ctx context.Context) (io.ReadCloser, error) {
	const path = "/stats/prometheus?usedonly"
	resp, err := p.admin.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("envoy's admin: GET %s: unexpected status %d", path, resp.StatusCode)
	}
	return resp.Body, nil
}

// istioKnown are the lines of a poll that pilot-agent ignores (pkg/envoy/admin.go): the names are its own.
var istioKnown = regexp.MustCompile(`^listener\.(` +
	`0\.0\.0\.0_(15021|15090)|admin|admin\.main_thread)\.downstream_cx_active$`)

// istioFilter is the filter of pilot-agent's poll.
const istioFilter = `downstream_cx_active$`

// IstioCount counts as pilot-agent does, faults included: a listener with worker_
// in its name is never counted, IPv6's known listeners always are. known is false
// for its "not available": an empty body, or a sum of -1.
func IstioCount(body []byte) (active int, known bool) {
	known = len(body) > 0
	for name, value := range ParseStats(body) {
		if strings.HasPrefix(name, "listener.") && !strings.Contains(name, "worker_") &&
			!strings.HasPrefix(name, "listener.envoy_internal_") && !istioKnown.MatchString(name) {
			active += int(value)
		}
	}
	return active, known && active != -1
}
