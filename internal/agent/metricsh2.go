package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/internal/counters"
)

// descH2 are the counters of HTTP/2, by Envoy's names below http2.
var descH2 = func() map[string]*prometheus.Desc {
	help := map[string]string{
		"rx_reset":                           "RST_STREAM received from clients.",
		"tx_reset":                           "RST_STREAM sent to clients, by the app and by the pipe.",
		"goaway_sent":                        "GOAWAY sent by the pipe.",
		"rx_messaging_error":                 "Connections ended because the client violated HTTP/2.",
		"h2c_upgrade":                        "Connections upgraded to HTTP/2 by Upgrade: h2c.",
		"outbound_control_flood":             "Connections ended for too many unanswered PING and SETTINGS.",
		"rx_premature_resets_flood":          "Connections ended because most of their streams were reset at once.",
		"inbound_empty_frames_flood":         "Connections ended for too many empty frames.",
		"inbound_window_update_frames_flood": "Connections ended for too many WINDOW_UPDATE.",
		"inbound_priority_frames_flood":      "Connections ended for too many PRIORITY.",
		"inbound_continuation_frames_flood":  "Connections ended for too many CONTINUATION.",
		"header_overflow":                    "Connections ended for header blocks or lists above the limit.",
		"inbound_header_timeout":             "Connections ended because a header block was not completed in time.",
		"inbound_streams_flood":              "Connections ended for far more concurrent streams than the app allows.",
	}
	out := make(map[string]*prometheus.Desc)
	for name := range counters.HTTP2ByName(counters.HTTP2Stats{}) {
		out[name] = prometheus.NewDesc("envoy_http2_"+name, help[name], nil, nil)
	}
	return out
}()
