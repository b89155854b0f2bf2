package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/internal/pipe"
)

// descH2 are the counters of HTTP/2, by the names that Envoy has for them below
// http2.
var descH2 = func() map[string]*prometheus.Desc {
	help := map[string]string{
		"rx_reset":                           "RST_STREAM of clients.",
		"tx_reset":                           "RST_STREAM to clients, the app's and ours.",
		"goaway_sent":                        "GOAWAY of ours.",
		"rx_messaging_error":                 "Connections ended because the client did not keep to HTTP/2.",
		"h2c_upgrade":                        "Connections that became HTTP/2 by Upgrade: h2c.",
		"outbound_control_flood":             "Connections ended for too many PING and SETTINGS that waited for answers.",
		"rx_premature_resets_flood":          "Connections ended because most of their streams were reset at once.",
		"inbound_empty_frames_flood":         "Connections ended for too many empty frames.",
		"inbound_window_update_frames_flood": "Connections ended for too many WINDOW_UPDATE.",
		"inbound_priority_frames_flood":      "Connections ended for too many PRIORITY.",
		"inbound_continuation_frames_flood":  "Connections ended for too many CONTINUATION.",
		"header_overflow":                    "Connections ended for header blocks or lists that were too large.",
		"inbound_header_timeout":             "Connections ended because a header block did not come to its end.",
		"inbound_streams_flood":              "Connections ended for far more streams at once than the app allows.",
	}
	out := make(map[string]*prometheus.Desc)
	for name := range (pipe.H2Stats{}).Each {
		out[name] = prometheus.NewDesc("envoy_http2_"+name, help[name], nil, nil)
	}
	return out
}()
