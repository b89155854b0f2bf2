package pipe

import (
	"net"

	"github.com/lastcall-dev/lastcall/internal/counters"
	"github.com/lastcall-dev/lastcall/internal/tlsserver"
)

// Listener is what can be seen of one way in.
type Listener struct {
	Inbound
	Addr    net.Addr // where it listens, or did
	Open    int      // connections of clients that we have not ended
	Busy    int      // of them, as in drain.Activity
	AppOpen int      // connections to the app
	Stats   counters.Stats
	TLS     *tlsserver.Stats // nil where no TLS ends
}

// Label is what the listener is called in metrics and lists: its name, or where it
// listens.
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
			Open:    int(l.stats.Open.Load()),
			Busy:    int(l.stats.Busy.Load()),
			AppOpen: int(l.stats.AppOpen.Load()),
			TLS:     l.tls.Stats(),
		}
		l.stats.AddTo(&out[i].Stats)
	}
	return out
}
