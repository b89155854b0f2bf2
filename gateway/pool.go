package gateway

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// Pool is a set of endpoints that share the requests in turn (round robin). An endpoint that leaves it gets no new
// requests, and its idle connections are closed; requests in flight continue.
type Pool struct {
	name    string
	options Options
	log     *slog.Logger
	metrics *metrics // nil without a name

	mu   sync.Mutex                  // one change at a time
	list atomic.Pointer[[]*endpoint] // replaced, never modified
	next atomic.Uint64
}

// EndpointStates counts a pool's endpoints for the metrics.
type EndpointStates struct {
	Ready       int
	Terminating int // and serving
	NotReady    int
}

// NewPool makes an empty Pool. Its name is the CLUSTER of the access log and the label of its metrics; without a name
// there are no metrics.
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

// Set replaces the endpoints by addrs, each host:port, which all speak protocol. Endpoints that remain keep their
// connections. An address that appears twice counts once. If an address is invalid, nothing changes.
func (p *Pool) Set(addrs []string, protocol Protocol) error {
	for _, addr := range addrs {
		if err := checkEndpoint(addr); err != nil {
			return err
		}
	}
	p.Replace(addrs, protocol, EndpointStates{Ready: len(addrs)})
	return nil
}

// Replace is Set for addresses that are known to be valid, with the counts for the metrics.
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

// few shortens a list for a log line.
func few(list []string) []string {
	const most = 20
	if len(list) <= most {
		return list
	}
	return append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", len(list)-most))
}

// Addrs returns the current addresses.
func (p *Pool) Addrs() []string {
	list := *p.list.Load()
	out := make([]string, len(list))
	for i, ep := range list {
		out[i] = ep.addr
	}
	return out
}

// pick returns the next endpoint, if possible one that is not in tried; otherwise again is true. It is nil if the pool is
// empty. An endpoint that was removed between two attempts is not returned.
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

// Close closes the connections to all endpoints as they become idle. Requests that have this pool already are still
// served. It is called once.
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
