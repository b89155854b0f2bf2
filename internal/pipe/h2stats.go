package pipe

import (
	"sync/atomic"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// h2Stats are a listener's counters of HTTP/2.
type h2Stats struct {
	floods   [http2.Floods]atomic.Uint64
	rxResets atomic.Uint64
	txResets atomic.Uint64
	goAways  atomic.Uint64
	badPeers atomic.Uint64
	upgrades atomic.Uint64
}

// H2Stats are the counters of HTTP/2, since the start.
type H2Stats struct {
	RxResets uint64 // RST_STREAM of clients
	TxResets uint64 // RST_STREAM to clients, the app's and ours
	GoAways  uint64 // GOAWAY of ours
	BadPeers uint64 // connections ended for what is not HTTP/2
	Upgrades uint64 // connections that became HTTP/2 by Upgrade: h2c
	floods   [http2.Floods]uint64
}

// Each names the counters one after another, as Envoy does below http2. where it
// has the same.
func (s H2Stats) Each(yield func(name string, value uint64) bool) {
	counters := []struct {
		name  string
		value uint64
	}{{"rx_reset", s.RxResets}, {"tx_reset", s.TxResets}, {"goaway_sent", s.GoAways}, {"rx_messaging_error", s.BadPeers}, {"h2c_upgrade", s.Upgrades}}
	for flood, n := range s.floods {
		name := http2.Flood(flood).Counter()
		if last := &counters[len(counters)-1]; last.name == name {
			last.value += n
			continue
		}
		counters = append(counters, struct {
			name  string
			value uint64
		}{name, n})
	}
	for _, c := range counters {
		if !yield(c.name, c.value) {
			return
		}
	}
}

func (s *h2Stats) addTo(sum *H2Stats) {
	sum.RxResets += s.rxResets.Load()
	sum.TxResets += s.txResets.Load()
	sum.GoAways += s.goAways.Load()
	sum.BadPeers += s.badPeers.Load()
	sum.Upgrades += s.upgrades.Load()
	for i := range s.floods {
		sum.floods[i] += s.floods[i].Load()
	}
}
