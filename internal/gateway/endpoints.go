package gateway

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
)

// endpoints is the list that requests go round. An endpoint that leaves it gets no new
// request; those in flight go on; its idle connections are closed.
type endpoints struct {
	options Options
	log     *slog.Logger

	mu   sync.RWMutex // guards list, which is replaced and never changed
	list []*endpoint

	next atomic.Uint64
}

// set replaces the list. Endpoints that stay keep their connections. The order
// is that of addrs; an address named twice counts once.
func (e *endpoints) set(addrs []string) {
	e.mu.Lock()
	before := make(map[string]*endpoint, len(e.list))
	for _, ep := range e.list {
		before[ep.addr] = ep
	}
	after := make([]*endpoint, 0, len(addrs))
	var added, removed []string
	seen := make(map[string]bool, len(addrs))
	for _, addr := range addrs {
		if seen[addr] {
			continue
		}
		seen[addr] = true
		ep, ok := before[addr]
		if !ok {
			ep = newEndpoint(addr, e.options)
			added = append(added, addr)
		}
		delete(before, addr)
		after = append(after, ep)
	}
	e.list = after
	e.mu.Unlock()

	for addr, ep := range before {
		removed = append(removed, addr)
		ep.remove()
	}
	if len(added)+len(removed) > 0 {
		slices.Sort(removed)
		e.log.Info("endpoints changed", "added", added, "removed", removed, "count", len(after))
	}
}

// addrs is the list as it is.
func (e *endpoints) addrs() []string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	out := make([]string, len(e.list))
	for i, ep := range e.list {
		out[i] = ep.addr
	}
	return out
}

// pick gives the next endpoint, one that is not in tried if there is such a
// one; nil if the list is empty. It looks at the list of this moment: one that was
// removed between two attempts is not tried.
func (e *endpoints) pick(tried []*endpoint) (ep *endpoint, again bool) {
	e.mu.RLock()
	list := e.list
	e.mu.RUnlock()
	if len(list) == 0 {
		return nil, false
	}
	start := e.next.Add(1) - 1
	for i := range list {
		ep := list[(start+uint64(i))%uint64(len(list))]
		if !slices.Contains(tried, ep) {
			return ep, false
		}
	}
	return list[start%uint64(len(list))], true
}

// close ends the idle connections to all.
func (e *endpoints) close() {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, ep := range e.list {
		ep.transport.CloseIdleConnections()
	}
}
