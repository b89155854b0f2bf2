package sideport

import (
	"net/netip"
	"slices"
	"sync"
)

// crowd bounds how many guests there are at once. When there is one too many, the
// oldest of the address with the most guests is ended: an address that takes all the
// room displaces its own.
type crowd struct {
	limit int

	mu     sync.Mutex // guards what follows, and the guests' held
	n      int
	guests map[netip.Addr][]*guest // the oldest first
}

// guest is one that is there.
type guest struct {
	crowd *crowd
	from  netip.Addr
	end   func()
	held  bool
}

func newCrowd(limit int) *crowd {
	return &crowd{limit: limit, guests: make(map[netip.Addr][]*guest)}
}

// admit takes one in from a peer, host:port. end ends it; it is called at most once,
// and not for one that has left.
func (c *crowd) admit(peer string, end func()) *guest {
	at, _ := netip.ParseAddrPort(peer) // a Unix socket's peers are one address
	g := &guest{crowd: c, from: at.Addr().Unmap(), end: end}
	c.mu.Lock()
	c.n++
	c.guests[g.from] = append(c.guests[g.from], g)
	var victim *guest
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

// oldestOfMost is the connection to end. It is never nil while any is not held. The
// caller holds mu.
func (c *crowd) oldestOfMost() *guest {
	var victim *guest
	most := 0
	for _, all := range c.guests {
		free := 0
		var oldest *guest
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

// remove takes one out; false when it has gone already. The caller holds mu.
func (c *crowd) remove(g *guest) bool {
	all := c.guests[g.from]
	i := slices.Index(all, g)
	if i < 0 {
		return false
	}
	c.n--
	if all = slices.Delete(all, i, i+1); len(all) == 0 {
		delete(c.guests, g.from)
	} else {
		c.guests[g.from] = all
	}
	return true
}

// leave takes the guest out.
func (g *guest) leave() {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.crowd.remove(g)
}

// hold says whether the guest must stay.
func (g *guest) hold(yes bool) {
	g.crowd.mu.Lock()
	defer g.crowd.mu.Unlock()
	g.held = yes
}
