package admin

import (
	"net/http"
	"strings"
)

// command is one path of the API.
type command struct {
	path    string
	help    string
	mutates bool // POST only
	params  []help
	do      func(*Server, query) answer
}

// help describes a parameter.
type help struct{ name, text string }

const (
	helpUsedOnly = "Only include stats that have been written by system since restart"
	helpFilter   = "Regular expression (Google re2) for filtering stats"
	helpInvert   = "Invert the filter regex"
	helpBuckets  = "Histogram bucket display mode; "
)

// commands are in the order of /help, which is Envoy's, with Envoy's texts.
func commands() []command {
	return []command{
		{path: "/", help: "Admin home page", do: (*Server).home},
		{path: "/connections", help: "list the clients' connections", do: (*Server).connections, params: []help{
			{"format", "File format to use; One of (text, json)"},
		}},
		{path: "/drain_listeners", mutates: true, help: "drain listeners", do: (*Server).drainListeners, params: []help{
			{"graceful", "When draining listeners, enter a graceful drain period prior to closing listeners. This behaviour and duration is configurable via server options or CLI"},
			{"skip_exit", "When draining listeners, drain the connections but never stop the listeners. The graceful parameter has no effect when this is set, since the drain period only delays stopping the listeners"},
			{"inboundonly", "Drains all inbound listeners. traffic_direction field in envoy_v3_api_msg_config.listener.v3.Listener is used to determine whether a listener is inbound or outbound."},
		}},
		{path: "/healthcheck/fail", mutates: true, help: "cause the server to fail health checks", do: (*Server).healthFail},
		{path: "/healthcheck/ok", mutates: true, help: "cause the server to pass health checks", do: (*Server).healthOK},
		{path: "/help", help: "print out list of admin commands", do: (*Server).help},
		{path: "/listeners", help: "print listener info", do: (*Server).listeners, params: []help{
			{"format", "File format to use; One of (text, json)"},
		}},
		{path: "/quitquitquit", mutates: true, help: "exit the server", do: (*Server).quit},
		{path: "/ready", help: "print server state, return 200 if LIVE, otherwise return 503", do: (*Server).ready},
		{path: "/stats", help: "print server stats", do: (*Server).stats, params: []help{
			{"usedonly", helpUsedOnly}, {"filter", helpFilter}, {"invert_filter", helpInvert},
			{"format", "Format to use; One of (html, active-html, text, json)"},
			{"type", "Stat types to include.; One of (All, Counters, Histograms, Gauges, TextReadouts)"},
			{"histogram_buckets", helpBuckets + "One of (cumulative, disjoint, detailed, summary)"},
		}},
		{path: "/stats/prometheus", help: "print server stats in prometheus format", do: (*Server).statsPrometheus, params: []help{
			{"usedonly", helpUsedOnly},
			{"text_readouts", "Render text_readouts as new gaugues with value 0 (increases Prometheus data size)"},
			{"filter", helpFilter}, {"invert_filter", helpInvert},
			{"histogram_buckets", helpBuckets + "One of (cumulative, summary)"},
		}},
	}
}

func (s *Server) help(query) answer {
	return text(http.StatusOK, s.commandList())
}

func (s *Server) commandList() string {
	var b strings.Builder
	b.WriteString("admin commands are:\n")
	for _, c := range s.table {
		b.WriteString("  " + c.path)
		if c.mutates {
			b.WriteString(" (POST)")
		}
		b.WriteString(": " + c.help + "\n")
		for _, p := range c.params {
			b.WriteString("      " + p.name + ": " + p.text + "\n")
		}
	}
	return b.String()
}
