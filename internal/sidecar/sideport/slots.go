package sideport

import (
	"net/netip"
	"slices"
	"sync"
)

// slots bounds the number of connections or requests. If there is one too many, the oldest of the address with the most
// slots is ended: an address that takes all slots displaces its own.
type slots struct {
	limit     int
	keepFirst bool // the first slot of an address stays, and the oldest of the others is ended

	mu    sync.Mutex // guards the rest
	n     int
	taken map[netip.Addr][]*slot // the oldest first
}

// slot is one that is taken.
type slot struct {
	slots *slots
	from  netip.Addr
	end   func()
}

func newSlots(limit int) *slots {
	return &slots{limit: limit, taken: make(map[netip.Addr][]*slot)}
}

// take takes a slot for a peer, host:port. end ends its user; it is called at most once, and not after release.
func (c *slots) take(peer string, end func()) *slot {
	at, _ := netip.ParseAddrPort(peer) // all peers of a Unix socket are one address
	g := &slot{slots: c, from: at.Addr().Unmap(), end: end}
	c.mu.Lock()
	c.n++
	c.taken[g.from] = append(c.taken[g.from], g)
	var victim *slot
	if c.n > c.limit {
		victim = c.oldestOfMost()
		c.remove(victim)
	}
	c.mu.Unlock()
	if victim != nil {
		victim.end()
	}
	return g
}

// oldestOfMost is the slot to end. The caller holds mu.
func (c *slots) oldestOfMost() *slot {
	var most []*slot
	for _, all := range c.taken {
		if len(all) > len(most) {
			most = all
		}
	}
	if c.keepFirst && len(most) > 1 {
		return most[1]
	}
	return most[0]
}

// remove frees a slot, once. The caller holds mu.
func (c *slots) remove(g *slot) {
	all := c.taken[g.from]
	i := slices.Index(all, g)
	if i < 0 {
		return
	}
	c.n--
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(c.taken, g.from)
	} else {
		c.taken[g.from] = all
	}
}

// release frees the slot.
func (g *slot) release() {
	g.slots.mu.Lock()
	defer g.slots.mu.Unlock()
	g.slots.remove(g)
}
