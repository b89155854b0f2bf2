package counters

import "github.com/lastcall-dev/lastcall/internal/wire/http2"

// HTTP2Stats are values of the counters of HTTP/2.
type HTTP2Stats = http2Values[uint64]

type http2Values[T any] struct {
	RxResets T               // RST_STREAM of clients
	TxResets T               // RST_STREAM to clients, of the app and of the pipe
	GoAways  T               // GOAWAY of the pipe
	BadPeers T               // connections ended for a protocol violation
	Floods   [http2.Floods]T // connections ended for a flood
}

// HTTP2ByName returns the counters by Envoy's names below http2., where Envoy has the counter.
func HTTP2ByName(s HTTP2Stats) map[string]uint64 {
	named := map[string]uint64{
		"rx_reset": s.RxResets, "tx_reset": s.TxResets, "goaway_sent": s.GoAways,
		"rx_messaging_error": s.BadPeers,
	}
	for flood, n := range s.Floods {
		named[http2.Flood(flood).Counter()] += n
	}
	return named
}
