package counters

import (
	"sync/atomic"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// http2Counters are the counters of HTTP/2.
type http2Counters struct {
	Floods   [http2.Floods]atomic.Uint64
	RxResets atomic.Uint64
	TxResets atomic.Uint64
	GoAways  atomic.Uint64
	BadPeers atomic.Uint64
	Upgrades atomic.Uint64
}

// HTTP2Stats are values of the counters of HTTP/2.
type HTTP2Stats struct {
	RxResets uint64               // RST_STREAM of clients
	TxResets uint64               // RST_STREAM to clients, of the app and of the pipe
	GoAways  uint64               // GOAWAY of the pipe
	BadPeers uint64               // connections ended for a protocol violation
	Upgrades uint64               // connections that became HTTP/2 by Upgrade: h2c
	Floods   [http2.Floods]uint64 // connections ended for a flood
}

// Each yields names and values of the counters. The names are Envoy's below http2., where Envoy has the counter.
func (s HTTP2Stats) Each(yield func(name string, value uint64) bool) {
	type counter struct {
		name  string
		value uint64
	}
	counters := []counter{
		{"rx_reset", s.RxResets}, {"tx_reset", s.TxResets}, {"goaway_sent", s.GoAways},
		{"rx_messaging_error", s.BadPeers}, {"h2c_upgrade", s.Upgrades},
	}
	for flood, n := range s.Floods {
		name := http2.Flood(flood).Counter()
		if last := &counters[len(counters)-1]; last.name == name {
			last.value += n
			continue
		}
		counters = append(counters, counter{name, n})
	}
	for _, c := range counters {
		if !yield(c.name, c.value) {
			return
		}
	}
}

func (c *http2Counters) addTo(sum *HTTP2Stats) {
	sum.RxResets += c.RxResets.Load()
	sum.TxResets += c.TxResets.Load()
	sum.GoAways += c.GoAways.Load()
	sum.BadPeers += c.BadPeers.Load()
	sum.Upgrades += c.Upgrades.Load()
	for i := range c.Floods {
		sum.Floods[i] += c.Floods[i].Load()
	}
}
