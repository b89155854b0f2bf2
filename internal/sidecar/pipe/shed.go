package pipe

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// The stacks of a connection's two goroutines grow to 4 KB with the first message and stay so: the runtime halves a
// stack only if less than a quarter is in use, and counts 800 bytes as used in any case (runtime.shrinkstack). That is
// more than everything else an idle connection takes. So both goroutines of a connection that has been idle for a while
// are woken, and continue in new goroutines with stacks of 2 KB.

const (
	// shedAfter is how long a connection is idle before it sheds its stacks: one in use does not.
	shedAfter = time.Second

	// shedPause is the time between two looks at the connections.
	shedPause = shedAfter / 2

	// shedMany is how many connections must have shed their stacks for a garbage collection to pay (1 MB): the runtime
	// keeps the pages until the next one, and idle connections cause none.
	shedMany = 256

	// shedRest is the least time between two such collections, however often many clients come and go.
	shedRest = 30 * time.Second
)

// growsLocked notes that the stacks have grown, or are about to.
func (c *conn) growsLocked() {
	if !c.stacksGrown {
		c.stacksGrown = true
		c.p.shedLater()
	}
}

// stacks is the state of the shedding.
type stacks struct {
	due       atomic.Bool  // shedStacks is scheduled
	shed      atomic.Int64 // connections since the latest collection
	collected state        // the latest collection
}

func (p *Pipe) shedLater() {
	if p.ctx.Err() == nil && p.stacks.due.CompareAndSwap(false, true) {
		time.AfterFunc(shedPause, p.shedStacks)
	}
}

// shedStacks looks at the connections until none has grown stacks.
func (p *Pipe) shedStacks() {
	p.stacks.due.Store(false)
	left, now := false, 0
	for _, c := range p.all() {
		if shed, later := c.shed(); shed {
			now++
		} else {
			left = left || later
		}
	}
	collected := &p.stacks.collected
	switch {
	case p.stacks.shed.Add(int64(now)) < shedMany, now > 0: // those of this round have yet to wake
	case collected.holds() && collected.lasted() < shedRest:
		left = true
	default:
		collected.end()
		collected.begin()
		p.stacks.shed.Store(0)
		debug.FreeOSMemory()
	}
	if left || now > 0 {
		p.shedLater()
	}
}

// shed makes the connection shed its stacks if they have grown and it is idle, and reports whether it may later.
func (c *conn) shed() (shed, later bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.stacksGrown || c.end.done():
		return false, false
	case c.hasWorkLocked() || time.Since(c.idleSince) < shedAfter:
		return false, true
	}
	c.stacksGrown = false
	if c.queue.len() == 0 && c.queue.hasRoom() {
		_ = c.queue.take()
	}
	c.p.budget.Add(c.queue.recharge())
	c.client.Wake()
	if c.app != nil {
		c.app.Wake()
	}
	return true, false
}
