package observe

import (
	"context"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// The kubelet's probes look like clients on the node's own addresses, one by one; but they come at the same moment of
// each period:
//
//	connections from the node    |····p····|····p····|····p·c··|····p····|
//	refused                                                    x    p        x: a client, p: the probe
const (
	probeSlack  = 250 * time.Millisecond // a probe is late by up to this, on a busy node
	probeLate   = time.Second            // on an overloaded node, by up to this
	probeTick   = 20 * time.Millisecond  // two sightings this close are one
	probesKept  = 64                     // sightings of a port
	probeWindow = 10 * time.Second       // in which other clients on the node's addresses are looked for
)

// likeness is whether a connection is taken for a probe.
type likeness struct{ is, isCertain bool }

// probes recognizes the kubelet's probes.
type probes struct {
	all  []Probe
	seen map[uint16][]time.Time // connections from the node to a probe's port, and refused probes; the oldest first
	free map[Probe]int          // refused connections that were attributed to a probe whose moment is not confirmed

	node          *Node               // nil: unknown
	own           map[netip.Addr]bool // the pod's addresses, as its connections show them
	refused       []sockdiag.Socket   // the node's connections to a probe's port that were refused
	completeUntil time.Time           // until when these are complete
	isPassed      bool                // a sidecar passes probes on, and may be refused within the pod
}

func newProbes(all []Probe, node *Node) probes {
	all = slices.DeleteFunc(slices.Clone(all), func(p Probe) bool { return p.Period <= 0 })
	return probes{all: all, seen: map[uint16][]time.Time{}, free: map[Probe]int{}, node: node, own: map[netip.Addr]bool{}}
}

// clone is a copy, but of own.
func (p *probes) clone() probes {
	out := *p
	out.refused, out.free, out.seen = slices.Clone(p.refused), maps.Clone(p.free), maps.Clone(p.seen)
	for port, seen := range p.seen {
		out.seen[port] = slices.Clone(seen)
	}
	return out
}

// has reports whether a port has a probe.
func (p *probes) has(port uint16) bool {
	return slices.ContainsFunc(p.all, func(one Probe) bool { return one.Port == port })
}

// note adds a connection from the node.
func (p *probes) note(port uint16, at time.Time) {
	if !p.has(port) {
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

// take reports whether a connection between two moments, since the beginning of the termination, is a probe: for
// certain, unless other clients use the node's addresses, or its moment is not confirmed.
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
				if next.After(to) {
					next = to
				}
				p.note(one.Port, later(from, next))
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

// takeLate reports whether a port has a probe, which a busy kubelet may have sent at another moment: once for each.
func (p *probes) takeLate(port uint16) bool {
	i := slices.IndexFunc(p.all, func(one Probe) bool { return one.Port == port && p.free[one] == 0 })
	if i >= 0 {
		p.free[p.all[i]]++
	}
	return i >= 0
}

// ask takes what the node knows since the last time.
func (p *probes) ask() {
	if p.node == nil || len(p.own) == 0 {
		return
	}
	refused, until, known := p.node.since(p.completeUntil, func(to netip.AddrPort) bool {
		return p.own[to.Addr()] && p.has(to.Port())
	})
	if p.refused, p.completeUntil = append(p.refused, refused...), until; !known || len(p.refused) > maxNode {
		p.node = nil
	}
}

// takeRefused returns how many of refused connections the node shows as its own, whose sockets it destroyed by so much
// later.
func (p *probes) takeRefused(r refusal, late time.Duration) (n int) {
	p.refused = slices.DeleteFunc(p.refused, func(s sockdiag.Socket) bool {
		isSoon := !s.Ended.Before(r.since.Add(-probeSlack)) && !s.Ended.After(r.now.Add(late))
		if n == r.n || !isSoon || p.hasOthers(s.Remote.Port(), r.now) {
			return false
		}
		p.note(s.Remote.Port(), s.Ended)
		n++
		return true
	})
	return n
}

// guessRefused is take for a refused connection that the node does not show: it is no probe if the node shows all.
func (p *probes) guessRefused(began time.Time, r refusal) (is, isCertain bool) {
	hasOthers := slices.ContainsFunc(p.all, func(one Probe) bool { return p.hasOthers(one.Port, r.now) })
	if p.node == nil || p.isPassed || hasOthers || p.waits(r) {
		return p.take(began, r.since, r.now)
	}
	return false, false
}

// waits reports whether the kubelet may not have closed the socket of a refused probe yet at the look at the node.
func (p *probes) waits(r refusal) bool { return p.completeUntil.Before(r.now.Add(probeSlack)) }

// isConfirmed reports whether two sightings a period apart have shown the probe's moment. The kubelet's first probe of
// a container may come at another one (the prober's manual trigger).
func (p *probes) isConfirmed(one Probe) bool {
	seen := p.seen[one.Port]
	return slices.ContainsFunc(seen, func(at time.Time) bool {
		isNext := func(next time.Time) bool { return next.Sub(at.Add(one.Period)).Abs() <= probeSlack }
		return slices.ContainsFunc(seen, isNext)
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
	if s.Remote.Port() == 0 {
		return
	}
	isInside := isWithin(s.Local.Addr(), s.Remote.Addr())
	if !isInside && len(g.probes.own) < probesKept {
		g.probes.own[s.Local.Addr()] = true
	}
	if isInside || g.mayProbe(s.Remote) {
		g.probes.note(s.Local.Port(), arrived)
	}
}

// probeOf is whether a lost request is taken for a probe's.
func (g *ledger) probeOf(e ending) likeness {
	if !g.mayProbe(e.sample.Peer) || !e.queued && (e.isInner || e.sample.Peer.Port() == 0) {
		return likeness{}
	}
	if e.queued && !e.probe.is { // otherwise its arrival has taken the probe
		e.probe.is, e.probe.isCertain = g.probes.take(g.result.Begin, e.arrived, e.at)
	}
	if !e.probe.is {
		e.probe.is = g.probes.takeLate(e.sample.Port)
	}
	return e.probe
}

// mayProbe reports whether a connection may be the kubelet's: from the machine's own or an unknown address.
func (g *ledger) mayProbe(from netip.AddrPort) bool {
	return from.Port() == 0 || g.options.Local != nil && g.options.Local(from.Addr())
}

const (
	nodePause = 250 * time.Millisecond // between readings of the node's reports
	nodeKeep  = time.Minute            // refused connections of the node are kept for this long,
	maxNode   = 1 << 14                // and at most so many
)

// Node shows which connections of a node's own processes were refused. These are the kubelet's probes, unless clients
// use the node's addresses, too:
//
//	node's namespace    SYN →             a socket is destroyed that knows the address of the pod
//	pod's namespace           → ← RST     one more reset, whose number is all that shows
type Node struct {
	watch *sockdiag.Watch

	mu      sync.Mutex // guards the fields below
	refused []sockdiag.Socket
	lost    time.Time // when reports were missing last
}

// OpenNode follows the network namespace with this path until ctx ends. It needs what Open needs.
func OpenNode(ctx context.Context, path string) (*Node, error) {
	namespace, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	n, many := new(Node), make(chan struct{}, 1)
	err = in(namespace, func() (err error) {
		n.watch, err = sockdiag.WatchAll(0, func() { sockdiag.Notify(many) })
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer n.watch.Close()
		for clock := time.NewTicker(nodePause); ; {
			select {
			case <-clock.C:
			case <-many:
			case <-ctx.Done():
				clock.Stop()
				return
			}
			n.mu.Lock()
			n.collectLocked()
			n.mu.Unlock()
		}
	}()
	return n, nil
}

func (n *Node) collectLocked() {
	n.watch.Receive()
	sockets, lost := n.watch.Ended()
	for _, s := range sockets {
		if s.Remote.Port() != 0 && s.Acked == 0 && s.Received == 0 && s.EmptyReceived == 1 { // a reset in answer to the SYN
			n.refused = append(n.refused, s)
		}
	}
	now, old := time.Now(), max(0, len(n.refused)-maxNode)
	if lost || old > 0 {
		n.lost = now
	}
	for old < len(n.refused) && now.Sub(n.refused[old].Ended) > nodeKeep {
		old++
	}
	n.refused = n.refused[old:]
}

// since returns the connections to some addresses that were refused after a moment, until another one. known is false
// if some are missing.
func (n *Node) since(at time.Time, is func(netip.AddrPort) bool) (all []sockdiag.Socket, until time.Time, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.collectLocked()
	for _, s := range n.refused {
		if s.Ended.After(at) && is(s.Remote) {
			all = append(all, s)
		}
	}
	until = time.Now()
	return all, until, until.Sub(n.lost) > nodeKeep
}
