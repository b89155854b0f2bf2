package pipe

import (
	"net"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// Listener is the state of one listener.
type Listener struct {
	Inbound
	Addr    net.Addr // where it listens, or listened
	Open    int      // clients' connections that have not ended
	Busy    int      // of them, as in drain.Activity
	AppOpen int      // connections to the app
	Stats   counters.Stats
	TLS     *tlsserver.Stats // nil if TLS is not terminated here
}

// Label is the listener's name in metrics and lists: its own, or its address.
func (l *Listener) Label() string { return label(&l.Inbound, l.Addr) }

func label(in *Inbound, addr net.Addr) string {
	if in.Name != "" {
		return in.Name
	}
	return addr.String()
}

// Listeners describes the listeners in the order of the configuration.
func (p *Pipe) Listeners() []Listener {
	out := make([]Listener, len(p.listeners))
	for i, l := range p.listeners {
		out[i] = Listener{
			Inbound: l.Inbound,
			Addr:    l.Addr(),
			Open:    max(0, int(l.stats.Open.Load())),
			Busy:    max(0, int(l.stats.Busy.Load())),
			AppOpen: max(0, int(l.stats.AppOpen.Load())),
			TLS:     l.tls.Stats(),
		}
		l.stats.AddTo(&out[i].Stats)
	}
	return out
}
