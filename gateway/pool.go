package gateway

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// Pool is a set of endpoints that requests go round. An endpoint that leaves it gets no new
// request; those in flight go on; its idle connections are closed.
type Pool struct {
	name    string
	options Options
	log     *slog.Logger
	metrics *metrics // nil without a name

	mu   sync.Mutex                  // one change at a time
	list atomic.Pointer[[]*endpoint] // replaced and never changed
	next atomic.Uint64
}

// EndpointStates counts a pool's endpoints for the metrics.
type EndpointStates struct {
	Ready       int
	Terminating int // serving, but on their way out
	NotReady    int
}

// NewPool makes an empty one. Its name is the CLUSTER of the access log and the label
// of its metrics; "" has neither.
func (g *Gateway) NewPool(name string) *Pool {
	p := &Pool{name: name, options: g.options, log: g.log}
	if name != "" {
		p.log = g.log.With("cluster", name)
		p.metrics = g.metrics
		p.metrics.added(name)
	}
	p.list.Store(new([]*endpoint))
	return p
}

// Set replaces the list, each host:port, all of which speak protocol. An error names the one that is wrong; the list
// stays as it was then. Endpoints that stay keep their connections. The order is that of
// addrs; an address named twice counts once.
func (p *Pool) Set(addrs []string, protocol Protocol) error {
	for _, addr := range addrs {
		if err := checkEndpoint(addr); err != nil {
			return err
		}
	}
	p.Replace(addrs, protocol, EndpointStates{Ready: len(addrs)})
	return nil
}

// Replace is Set for addresses that are known to be right, with what they speak and what the
// metrics say of them.
func (p *Pool) Replace(addrs []string, protocol Protocol, states EndpointStates) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.metrics != nil {
		p.metrics.setEndpoints(p.name, states)
	}
	list := *p.list.Load()
	before := make(map[string]*endpoint, len(list))
	for _, ep := range list {
		before[ep.addr] = ep
	}
	var left []*endpoint
	after := make([]*endpoint, 0, len(addrs))
	var added, removed []string
	seen := make(map[string]bool, len(addrs))
	for _, addr := range addrs {
		if seen[addr] {
			continue
		}
		seen[addr] = true
		ep := before[addr]
		switch {
		case ep == nil:
			ep = newEndpoint(addr, protocol, p.options)
			added = append(added, addr)
		case ep.protocol != protocol:
			left = append(left, ep)
			ep = newEndpoint(addr, protocol, p.options)
		}
		delete(before, addr)
		after = append(after, ep)
	}
	p.list.Store(&after)

	for addr, ep := range before {
		removed = append(removed, addr)
		left = append(left, ep)
	}
	for _, ep := range left {
		ep.remove()
	}
	if len(added)+len(left) > 0 {
		slices.Sort(removed)
		p.log.Info("endpoints changed", "added", few(added), "removed", few(removed), "count", len(after), "protocol", protocol.String())
	}
}

// few keeps a log line readable.
func few(list []string) []string {
	const most = 20
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// Addrs is the list of this moment.
func (p *Pool) Addrs() []string {
	list := *p.list.Load()
	out := make([]string, len(list))
	for i, ep := range list {
		out[i] = ep.addr
	}
	return out
}

// pick gives the next endpoint, one that is not in tried if there is such a
// one; nil if the list is empty. It looks at the list of this moment: one that was
// removed between two attempts is not tried.
func (p *Pool) pick(tried []*endpoint) (ep *endpoint, again bool) {
	list := *p.list.Load()
	if len(list) == 0 {
		return nil, false
	}
	start := p.next.Add(1) - 1
	for i := range list {
		ep := list[(start+uint64(i))%uint64(len(list))]
		if !slices.Contains(tried, ep) {
			return ep, false
		}
	}
	return list[start%uint64(len(list))], true
}

// Close ends the connections to all, each when it is idle. A request that has found its
// way here is still served. It is called once.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ep := range *p.list.Load() {
		ep.remove()
	}
	if p.metrics != nil {
		p.metrics.removed(p.name)
	}
}
