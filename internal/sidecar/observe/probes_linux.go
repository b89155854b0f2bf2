package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// The kubelet's probes look like clients on the node's own addresses, one by one; but they come at the same moment of each
// period:
//
//	connections from the node    |····p····|····p····|····p·c··|····p····|
//	refused                                                    x    p        x: a client, p: the probe
const (
	probeSlack  = 250 * time.Millisecond // a probe is late by up to this, on a busy node
	probeTick   = 20 * time.Millisecond  // two sightings this close are one
	probesKept  = 64                     // sightings of a port
	probeWindow = 10 * time.Second       // in which other clients on the node's addresses are looked for
)

// probes recognizes the kubelet's probes.
type probes struct {
	all  []Probe
	seen map[uint16][]time.Time // connections from the node to a probe's port, and refused probes; the oldest first
	free map[Probe]int          // refused connections that were attributed to a probe whose moment is not confirmed
}

func newProbes(all []Probe) probes {
	return probes{slices.DeleteFunc(slices.Clone(all), func(p Probe) bool { return p.Period <= 0 }), map[uint16][]time.Time{}, map[Probe]int{}}
}

func (p *probes) clone() probes {
	out := newProbes(p.all)
	for port, seen := range p.seen {
		out.seen[port] = slices.Clone(seen)
	}
	for probe, n := range p.free {
		out.free[probe] = n
	}
	return out
}

// note adds a connection from the node.
func (p *probes) note(port uint16, at time.Time) {
	if !slices.ContainsFunc(p.all, func(one Probe) bool { return one.Port == port }) {
		return
	}
	seen := p.seen[port]
	i, _ := slices.BinarySearchFunc(seen, at, time.Time.Compare)
	if i > 0 && at.Sub(seen[i-1]) < probeTick || i < len(seen) && seen[i].Sub(at) < probeTick {
		return
	}
	if seen = slices.Insert(seen, i, at); len(seen) > probesKept {
		seen = slices.Delete(seen, 0, 1)
	}
	p.seen[port] = seen
}

// take reports whether a connection between two moments, since the beginning of the termination, is a probe: for certain,
// unless other clients use the node's addresses, or its moment is not confirmed.
func (p *probes) take(began, from, to time.Time) (is, isCertain bool) {
	for _, one := range p.all {
		seen, hasOthers := p.seen[one.Port], p.hasOthers(one.Port, from)
		for _, at := range slices.Backward(seen) {
			for periods := range time.Duration(2) { // one may have been missed
				next := at.Add((periods + 1) * one.Period)
				isDone := slices.ContainsFunc(seen, func(other time.Time) bool { return other.Sub(next).Abs() <= probeSlack })
				if next.Before(from.Add(-probeSlack)) || next.After(to.Add(probeSlack)) || isDone && !hasOthers {
					continue
				}
				p.note(one.Port, later(from, earlier(next, to)))
				return true, !hasOthers
			}
		}
	}
	for _, one := range p.all {
		if !p.isConfirmed(one) && p.free[one] <= int(to.Sub(began)/one.Period) {
			p.free[one]++
			return true, false
		}
	}
	return false, false
}

// isConfirmed reports whether two sightings a period apart have shown the probe's moment. The kubelet's first probe of a
// container may come at another one (the prober's manual trigger).
func (p *probes) isConfirmed(one Probe) bool {
	seen := p.seen[one.Port]
	return slices.ContainsFunc(seen, func(at time.Time) bool {
		return slices.ContainsFunc(seen, func(next time.Time) bool { return next.Sub(at.Add(one.Period)).Abs() <= probeSlack })
	})
}

// hasOthers reports whether a port had more connections from the node than its probes make.
func (p *probes) hasOthers(port uint16, until time.Time) bool {
	most, n := 0, 0
	for _, one := range p.all {
		if one.Port == port {
			most += int(probeWindow/one.Period) + 2
		}
	}
	for _, at := range p.seen[port] {
		if d := until.Sub(at); d >= 0 && d < probeWindow {
			n++
		}
	}
	return n > most
}

// noteProbe adds a connection that may be a probe: from the node, or from within the pod, where a sidecar passes it on.
func (g *ledger) noteProbe(s sockdiag.Socket, arrived time.Time) {
	if s.Remote.Port() != 0 && (g.mayProbe(s.Remote) || isWithin(s.Local.Addr(), s.Remote.Addr())) {
		g.probes.note(s.Local.Port(), arrived)
	}
}

// mayProbe reports whether a connection may be the kubelet's: from the machine's own or an unknown address.
func (g *ledger) mayProbe(from netip.AddrPort) bool {
	return from.Port() == 0 || g.options.Local != nil && g.options.Local(from.Addr())
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
