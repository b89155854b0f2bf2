package observe

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"sync"
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

	node          *Node               // nil: unknown
	own           map[netip.Addr]bool // the pod's addresses, as its connections show them
	refused       []sockdiag.Socket   // the node's connections to a probe's port that were refused
	completeUntil time.Time           // until when these are complete
	isPassed      bool                // a sidecar passes probes on, and may be refused within the pod
}

func newProbes(o Options) probes {
	return probes{
		all: slices.DeleteFunc(slices.Clone(o.Probes), func(p Probe) bool { return p.Period <= 0 }), local: o.Local,
		seen: map[uint16][]time.Time{}, taken: map[uint16]int{}, node: o.Node, own: map[netip.Addr]bool{},
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

// isProbe reports whether a lost request may be a probe's.
func (g *ledger) isProbe(e ending) bool {
	isUnknown := !e.queued && (e.isInner || e.sample.Peer.Port() == 0)
	return e.isProbe || !isUnknown && g.takeProbe(e.at, e.sample.Peer, e.sample.Port)
}

// ask takes what the node knows since the last time.
func (p *probes) ask() {
	if p.node == nil || len(p.own) == 0 {
		return
	}
	refused, until, known := p.node.since(p.completeUntil, func(to netip.AddrPort) bool {
		return p.own[to.Addr()] && p.most(to.Port(), 0) > 0
	})
	if p.refused, p.completeUntil = append(p.refused, refused...), until; !known || len(p.refused) > maxNode {
		p.node = nil
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
	for _, s := range shown {
		refused[s.Remote.Port()]++
	}
	for _, one := range p.all {
		if refused[one.Port] > p.most(one.Port, last.Sub(began)) || p.hasOthers(one.Port, last) {
			others[one.Port] = true
		}
	}
	for _, r := range all {
		shown = slices.DeleteFunc(shown, func(s sockdiag.Socket) bool {
			isSoon := !s.Ended.Before(r.since.Add(-probeSlack)) && !s.Ended.After(r.now.Add(probeLate))
			if r.n == 0 || !isSoon || others[s.Remote.Port()] {
				return false
			}
			r.n--
			return true
		})
		isComplete := p.node != nil && !p.isPassed && !p.waits(r) && len(others) == 0
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
