package agent

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// descH2 are the counters of HTTP/2, by Envoy's names below http2.
var descH2 = func() map[string]*prometheus.Desc {
	help := map[string]string{
		"rx_reset":           "RST_STREAM received from clients.",
		"tx_reset":           "RST_STREAM sent to clients, by the app and by the pipe.",
		"goaway_sent":        "GOAWAY sent by the pipe.",
		"rx_messaging_error": "Connections ended because the client violated HTTP/2.",
	}
	for flood := range http2.Floods {
		help[flood.Counter()] = "Connections ended: " + flood.Error() + "."
	}
	out := make(map[string]*prometheus.Desc)
	for name := range counters.HTTP2ByName(counters.HTTP2Stats{}) {
		out[name] = prometheus.NewDesc("envoy_http2_"+name, help[name], nil, nil)
	}
	return out
}()
