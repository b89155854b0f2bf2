package envoy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
)

// Bootstrap is our own configuration for an Envoy that serves the pipe's inbound listeners. It is made as JSON, not by
// text/template, which would keep the linker from removing unused methods: 3.3 MB of the program.
type Bootstrap struct {
	Inbound   []Route
	AccessLog string // file; empty: none
}

// Route is one inbound listener.
type Route struct {
	Listen, App string // host:port; App empty: a captured connection's original destination
	Protocol    string // auto, http or tcp, as the pipe's
}

// StatPrefix names the stats of an inbound listener as Istio does.
func (r Route) StatPrefix() string {
	host, port, _ := net.SplitHostPort(r.Listen)
	return "inbound_" + cmp.Or(host, "::") + "_" + port + ";"
}

// m is a message of Envoy's configuration, field by field.
type m map[string]any

// Types of Envoy's extensions.
const (
	typePrefix        = "type.googleapis.com/envoy.extensions."
	typeTCP           = typePrefix + "filters.network.tcp_proxy.v3.TcpProxy"
	typeRouter        = typePrefix + "filters.http.router.v3.Router"
	typeHTTPInspector = typePrefix + "filters.listener.http_inspector.v3.HttpInspector"
	typeOriginalDst   = typePrefix + "filters.listener.original_dst.v3.OriginalDst"
	typeFileLog       = typePrefix + "access_loggers.file.v3.FileAccessLog"
	typeHTTPOptions   = typePrefix + "upstreams.http.v3.HttpProtocolOptions"
)

// Render writes the configuration with the admin API at admin.
func (b Bootstrap) Render(admin string) ([]byte, error) {
	adminAddress, err := address(admin)
	if err != nil {
		return nil, fmt.Errorf("write envoy's bootstrap: admin: %w", err)
	}
	listeners, clusters := []m{}, []m{}
	for i, in := range b.Inbound {
		listener, err := b.listener(i, in)
		if err != nil {
			return nil, fmt.Errorf("write envoy's bootstrap: inbound %s: %w", in.Listen, err)
		}
		to, err := in.cluster(cluster(i))
		if err != nil {
			return nil, fmt.Errorf("write envoy's bootstrap: app %s: %w", in.App, err)
		}
		listeners, clusters = append(listeners, listener), append(clusters, to)
	}
	return json.Marshal(m{
		"admin":            m{"address": adminAddress},
		"stats_config":     m{"stats_matcher": m{"inclusion_list": m{"patterns": shownStats()}}},
		"static_resources": m{"listeners": listeners, "clusters": clusters},
	})
}

// shownStats are the stats that a drain, its report and the usual dashboards need: each further one costs memory here
// and storage in Prometheus.
func shownStats() (patterns []m) {
	for _, prefix := range []string{"server.", "listener_manager.", "cluster_manager."} {
		patterns = append(patterns, m{"prefix": prefix})
	}
	for _, suffix := range []string{
		connectionsActive, connectionsTotal, requestsActive, requestsTotal,
		"downstream_cx_upgrades_active",
		"upstream_cx_active", "upstream_cx_connect_fail", "upstream_rq_active",
	} {
		patterns = append(patterns, m{"suffix": suffix})
	}
	return append(patterns, m{"safe_regex": m{"regex": `http\..*\.downstream_rq_[1-5]xx`}})
}

// unlimited raises Envoy's limits of 1,024 connections and requests per cluster: limits are the app's decision.
var unlimited = m{"thresholds": []m{{
	"max_connections": math.MaxUint32, "max_pending_requests": math.MaxUint32, "max_requests": math.MaxUint32,
}}}

func cluster(i int) string { return "inbound|" + strconv.Itoa(i) }

// cluster is the app.
func (r Route) cluster(name string) (m, error) {
	c := m{
		"name": name, "connect_timeout": "5s", "circuit_breakers": unlimited,
		"typed_extension_protocol_options": m{
			"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": m{"@type": typeHTTPOptions,
				"use_downstream_protocol_config": m{}},
		},
	}
	if r.App == "" {
		// As Istio's InboundPassthroughCluster: the source address shows the app that a connection came through the
		// sidecar. IPv6 has no such address; there it is the pod's own.
		c["type"], c["lb_policy"] = "ORIGINAL_DST", "CLUSTER_PROVIDED"
		c["upstream_bind_config"] = m{
			"source_address":         m{"address": istio.Source4, "port_value": 0},
			"extra_source_addresses": []m{{"address": m{"address": "::", "port_value": 0}}},
		}
		return c, nil
	}
	app, err := address(r.App)
	c["type"] = "STATIC"
	endpoint := m{"endpoint": m{"address": app}}
	c["load_assignment"] = m{"cluster_name": name, "endpoints": []m{{"lb_endpoints": []m{endpoint}}}}
	return c, err
}

func extension(name string, config m) m { return m{"name": name, "typed_config": config} }

func (b Bootstrap) listener(i int, in Route) (m, error) {
	at, err := address(in.Listen)
	if err != nil {
		return nil, err
	}
	var chains, filters []m
	listener := m{"name": "inbound_" + strconv.Itoa(i), "traffic_direction": "INBOUND", "address": at}
	if in.App == "" {
		filters = append(filters, extension("envoy.filters.listener.original_dst", m{"@type": typeOriginalDst}))
	}
	if in.Protocol != "tcp" {
		chain := m{"filters": []m{b.httpManager(i, in)}}
		if in.Protocol == "auto" {
			chain["filter_chain_match"] = m{"application_protocols": []string{"http/1.0", "http/1.1", "h2c"}}
			filters = append(filters, extension("envoy.filters.listener.http_inspector", m{"@type": typeHTTPInspector}))
			listener["listener_filters_timeout"], listener["continue_on_listener_filters_timeout"] = "0.1s", true
		}
		chains = append(chains, chain)
	}
	if in.Protocol != "http" {
		chains = append(chains, m{"filters": []m{extension("envoy.filters.network.tcp_proxy", m{
			"@type": typeTCP, "stat_prefix": in.StatPrefix() + "tcp", "cluster": cluster(i), "idle_timeout": "0s",
		})}})
	}
	listener["filter_chains"], listener["listener_filters"] = chains, filters
	return listener, nil
}

func (b Bootstrap) httpManager(i int, in Route) m {
	route := m{"cluster": cluster(i), "timeout": "0s"}
	config := m{
		"@type": typeHTTP, "stat_prefix": in.StatPrefix(), "stream_idle_timeout": "0s",
		"server_header_transformation": "PASS_THROUGH",
		"upgrade_configs":              []m{{"upgrade_type": "websocket"}, {"upgrade_type": "CONNECT"}},
		"http_protocol_options":        m{"accept_http_10": true, "enable_trailers": true},
		"http2_protocol_options":       m{"allow_connect": true},
		"route_config": m{"name": "default", "virtual_hosts": []m{{
			"name": "inbound", "domains": []string{"*"},
			"routes": []m{
				{"match": m{"connect_matcher": m{}}, "route": route},
				{"name": "default", "match": m{"prefix": "/"}, "route": route},
			},
		}}},
		"http_filters": []m{extension("envoy.filters.http.router", m{"@type": typeRouter})},
	}
	if b.AccessLog != "" {
		config["access_log"] = []m{extension("envoy.access_loggers.file", m{
			"@type": typeFileLog, "path": b.AccessLog,
			"log_format": m{"text_format_source": m{"inline_string": accessLogFormat}},
		})}
	}
	return extension("envoy.filters.network.http_connection_manager", config)
}

// address is an address of Envoy's configuration. An empty host is all addresses, IPv4 and IPv6.
func address(at string) (m, error) {
	if path, ok := strings.CutPrefix(at, "unix:"); ok {
		return m{"pipe": m{"path": path}}, nil
	}
	host, portText, err := net.SplitHostPort(at)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port of %q: %w", at, err)
	}
	socket := m{"address": host, "port_value": port}
	switch host {
	case "":
		socket["address"], socket["ipv4_compat"] = "::", true
	case "localhost":
		socket["address"] = "127.0.0.1"
	}
	return m{"socket_address": socket}, nil
}

// accessLogFormat is Istio's default.
const accessLogFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" ` +
	`%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
	`"%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
	`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
	`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% ` +
	`%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%` + "\n"
