package sideport

import (
	"net/netip"
	"slices"
	"sync"
)

// slots bounds the number of connections or requests. If there is one too many, the oldest of the address with the most
// slots is ended: an address that takes all slots displaces its own.
type slots struct {
	limit int

	mu    sync.Mutex // guards what follows, and the taken' held
	n     int
	taken map[netip.Addr][]*slot // the oldest first
}

// slot is one that is taken.
type slot struct {
	slots *slots
	from  netip.Addr
	end   func()
	held  bool
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

// oldestOfMost is the slot to end. It is never nil while any is not held. The caller holds mu.
func (c *slots) oldestOfMost() *slot {
	var victim *slot
	most := 0
	for _, all := range c.taken {
		free := 0
		var oldest *slot
		for _, g := range all {
			if !g.held {
				if free++; oldest == nil {
					oldest = g
				}
			}
		}
		if free > most {
			most, victim = free, oldest
		}
	}
	return victim
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

// hold sets whether the slot must not be ended for another one.
func (g *slot) hold(yes bool) {
	g.slots.mu.Lock()
	defer g.slots.mu.Unlock()
	g.held = yes
}
