package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// The kubelet's probes look like clients on the node's own addresses. Which of those that were refused are probes, the
// node shows; otherwise as many as probes can have come since the beginning may be, and are unclear.
const (
	probeSlack  = 250 * time.Millisecond // a refused probe's report is late by up to this, on a busy node
	probeLate   = time.Second            // on an overloaded node, by up to this, as the probe itself
	probesKept  = 64                     // connections of a port from the node that are remembered
	probeWindow = 10 * time.Second       // in which other clients on the node's addresses are looked for
)

// probes are the kubelet's.
type probes struct {
	Options
	seen  map[uint16][]time.Time // connections from the node, of a probe's port
	taken map[uint16]int         // connections since Begin that were taken for probes

	refused       []Refusal           // that the node has shown, of the probes' ports at the pod's addresses
	own           map[netip.Addr]bool // these addresses, as the pod's connections show them
	completeUntil time.Time           // until when refused is complete
}

func newProbes(o Options) probes {
	o.Probes = slices.DeleteFunc(slices.Clone(o.Probes), func(p Probe) bool { return p.Period <= 0 })
	return probes{Options: o, seen: map[uint16][]time.Time{}, taken: map[uint16]int{}, own: map[netip.Addr]bool{}}
}

// most is how many probes of a port, 0 for all, can come within a time.
func (p *probes) most(port uint16, within time.Duration) (n int) {
	for _, one := range p.Probes {
		if one.Port == port || port == 0 {
			n += 1 + int((within+probeLate)/one.Period)
		}
	}
	return n
}

// mayBe reports whether a connection may be a probe: from the machine's own or an unknown address.
func (p *probes) mayBe(from netip.AddrPort) bool {
	return from.Port() == 0 || p.Local != nil && p.Local(from.Addr())
}

// note adds a client's connection to the app.
func (p *probes) note(s sockdiag.Socket, arrived time.Time) {
	if s.Remote.Port() == 0 {
		return
	}
	if len(p.own) < probesKept {
		p.own[s.Local.Addr()] = true
	}
	if port := s.Local.Port(); p.mayBe(s.Remote) && p.most(port, 0) > 0 {
		seen := append(p.seen[port], arrived)
		p.seen[port] = seen[max(0, len(seen)-probesKept):]
	}
}

// hasOthers reports whether a port had more connections from the node than its probes make.
func (p *probes) hasOthers(port uint16, until time.Time) bool {
	n := 0
	for _, at := range p.seen[port] {
		if d := until.Sub(at); d >= 0 && d < probeWindow {
			n++
		}
	}
	return n > p.most(port, probeWindow)
}

// takeProbe reports whether a connection after Begin may be a probe, unless so many have been taken for probes already.
func (g *ledger) takeProbe(at time.Time, from netip.AddrPort, port uint16) bool {
	p := &g.probes
	if !p.mayBe(from) || p.taken[port] >= p.most(port, at.Sub(g.result.Begin)) {
		return false
	}
	p.taken[port]++
	return true
}

// isProbe reports whether a lost request may be a probe's, which is the only one of its connection.
func (g *ledger) isProbe(e ending) bool {
	isUnknown := !e.queued && (e.isInner || e.Remote.Port() == 0)
	return e.Sent == 0 && (e.isProbe || !isUnknown && g.takeProbe(e.at, e.Remote, e.Local.Port()))
}

// ask takes what the node knows since the last time.
func (p *probes) ask() {
	if p.Refusals == nil || len(p.own) == 0 {
		return
	}
	all, until, known := p.Refusals(p.completeUntil)
	for _, r := range all {
		if p.own[r.To.Addr()] && p.most(r.To.Port(), 0) > 0 {
			p.refused = append(p.refused, r)
		}
	}
	if p.completeUntil = until; !known || len(p.refused) > maxBuffered {
		p.Refusals = nil
	}
}

// waits reports whether the kubelet may not have closed the socket of a refused probe yet at the look at the node.
func (p *probes) waits(r refusal) bool { return p.completeUntil.Before(r.now.Add(probeSlack)) }

// explain counts refused connections since Begin. Those that the node shows among its own were probes, unless it has
// other clients of the port; of the rest, as many as probes can have come may be probes, if the node does not show all.
func (p *probes) explain(began time.Time, all []refusal, count func(r refusal, isPerhaps bool)) {
	if len(all) == 0 {
		return
	}
	shown, perhaps, last := slices.Clone(p.refused), 0, all[len(all)-1].now
	refused, others := map[uint16]int{}, map[uint16]bool{}
	for _, r := range shown {
		refused[r.To.Port()]++
	}
	for _, one := range p.Probes {
		if refused[one.Port] > p.most(one.Port, last.Sub(began)) || p.hasOthers(one.Port, last) {
			others[one.Port] = true
		}
	}
	for _, r := range all {
		shown = slices.DeleteFunc(shown, func(one Refusal) bool {
			isSoon := !one.At.Before(r.since.Add(-probeSlack)) && !one.After.After(r.now.Add(probeLate))
			if r.n == 0 || !isSoon || others[one.To.Port()] {
				return false
			}
			r.n--
			return true
		})
		// A sidecar passes probes on, and may be refused within the pod.
		isComplete := p.Refusals != nil && len(p.ProxyPorts) == 0 && !p.waits(r) && len(others) == 0
		most := p.most(0, r.now.Sub(began))
		for range r.n {
			isPerhaps := !isComplete && perhaps < most
			if count(r, isPerhaps); isPerhaps {
				perhaps++
			}
		}
	}
}
