package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// A pod with a sidecar has two connections for a request: the client's to the sidecar, and the sidecar's to the app,
// the inner one. Each shows what the other does not. If the app ends first, a sidecar that knows HTTP answers the
// client with an error, and only the inner one ends without an answer; if the sidecar ends first, only the client's
// does.

// Istio's sidecar connects to the app from these addresses, which it gives the loopback interface.
var (
	istioSource  = netip.MustParseAddr("127.0.0.6")
	istioSource6 = netip.MustParseAddr("::6")
)

// isWithin reports whether a connection to an address of the namespace comes from the namespace itself.
func isWithin(to, from netip.Addr) bool {
	return to.IsLoopback() || from.IsLoopback() || to == from || from == istioSource6
}

// isInner reports whether the sidecar connects to a port from an address: not from 127.0.0.1, from where another
// container of the pod asks, such as the app its cache.
func (g *ledger) isInner(from netip.Addr, port uint16) bool {
	return len(g.options.ProxyPorts) > 0 && g.ports[port] && !slices.Contains(g.options.ProxyPorts, port) &&
		(!from.IsLoopback() || from == istioSource)
}

// isAttempt reports whether a destroyed socket is an attempt of the sidecar to connect, which the app's port refused:
// its SYN was not acknowledged.
func (g *ledger) isAttempt(s sockdiag.Socket) bool {
	return isWithin(s.Remote.Addr(), s.Local.Addr()) && g.isInner(s.Local.Addr(), s.Remote.Port()) && s.Acked == 0 && s.Received == 0
}

// lostRequest is one of a client's connection to the sidecar or of an inner one.
type lostRequest struct {
	isInner     bool
	requestedAt time.Time // when its last byte came
}

const (
	passTime     = 250 * time.Millisecond // a sidecar passes a request on within this, also on a busy machine
	unpairedMost = 1 << 12                // lost requests whose other connection is looked for
)

// isCountedAtOther reports whether a lost request has been counted at its other connection: a sidecar that relays bytes
// relays the end, too, and a pod that is killed loses both.
func (g *ledger) isCountedAtOther(e ending) bool {
	if len(g.options.ProxyPorts) == 0 || !e.isInner && !slices.Contains(g.options.ProxyPorts, e.sample.Port) {
		return false
	}
	one := lostRequest{e.isInner, e.requestedAt}
	for i, other := range g.unpaired {
		if other.isInner != one.isInner && one.requestedAt.Sub(other.requestedAt).Abs() <= passTime {
			g.unpaired = slices.Delete(g.unpaired, i, i+1)
			return true
		}
	}
	if len(g.unpaired) < unpairedMost {
		g.unpaired = append(g.unpaired, one)
	}
	return false
}
