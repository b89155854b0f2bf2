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
	all   []Probe
	local func(netip.Addr) bool
	seen  map[uint16][]time.Time // connections from the node, of a probe's port
	taken map[uint16]int         // connections since Begin that were taken for probes

	// refusals is Options.Refusals, and refused what it has shown of the probes' ports at the pod's addresses, own.
	refusals      func(after time.Time) (all []Refusal, until time.Time, known bool)
	refused       []Refusal
	own           map[netip.Addr]bool // as the pod's connections show them
	completeUntil time.Time           // until when these are complete
	isPassed      bool                // a sidecar passes probes on, and may be refused within the pod
}

func newProbes(o Options) probes {
	return probes{
		all: slices.DeleteFunc(slices.Clone(o.Probes), func(p Probe) bool { return p.Period <= 0 }), local: o.Local,
		seen: map[uint16][]time.Time{}, taken: map[uint16]int{}, refusals: o.Refusals, own: map[netip.Addr]bool{},
		isPassed: len(o.ProxyPorts) > 0,
	}
}

// most is how many can come within a time.
func (p Probe) most(within time.Duration) int { return 1 + int((within+probeLate)/p.Period) }

// most is how many probes of a port can come within a time.
func (p *probes) most(port uint16, within time.Duration) (n int) {
	for _, one := range p.all {
		if one.Port == port {
			n += one.most(within)
		}
	}
	return n
}

// mayBe reports whether a connection may be a probe: from the machine's own or an unknown address.
func (p *probes) mayBe(from netip.AddrPort) bool {
	return from.Port() == 0 || p.local != nil && p.local(from.Addr())
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
	isUnknown := !e.queued && (e.isInner || e.sample.Peer.Port() == 0)
	return !e.wasAnswered && (e.isProbe || !isUnknown && g.takeProbe(e.at, e.sample.Peer, e.sample.Port))
}

// ask takes what the node knows since the last time.
func (p *probes) ask() {
	if p.refusals == nil || len(p.own) == 0 {
		return
	}
	all, until, known := p.refusals(p.completeUntil)
	for _, r := range all {
		if p.own[r.To.Addr()] && p.most(r.To.Port(), 0) > 0 {
			p.refused = append(p.refused, r)
		}
	}
	if p.completeUntil = until; !known || len(p.refused) > maxBuffered {
		p.refusals = nil
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
	for _, one := range p.all {
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
		isComplete := p.refusals != nil && !p.isPassed && !p.waits(r) && len(others) == 0
		most := 0
		for _, one := range p.all {
			most += one.most(r.now.Sub(began))
		}
		for range r.n {
			isPerhaps := !isComplete && perhaps < most
			if count(r, isPerhaps); isPerhaps {
				perhaps++
			}
		}
	}
}
