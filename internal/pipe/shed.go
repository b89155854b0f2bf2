package pipe

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

// The stacks of a connection's two goroutines grow to 4 KB with the first message,
// and stay so: the runtime halves a stack of which less than a quarter is in use,
// and counts 800 bytes of it as used in any case (runtime.shrinkstack). That is
// more than all else an idle connection takes. So when it has been idle for a
// while, both are woken, and wait on in new goroutines, of 2 KB each.

const (
	// shedAfter is how long a connection is idle before it sheds its stacks: long
	// enough that one in use does not.
	shedAfter = time.Second

	// shedPause is how often it is looked whose time has come.
	shedPause = shedAfter / 2

	// shedMany is how many have to have shed their stacks for it to be worth a
	// collection (1 MB): by itself the runtime keeps the pages until the next one,
	// and idle connections bring none about.
	shedMany = 256

	// shedRest is how long after such a collection there is no other: clients that
	// come all at once and again must not bring one about each time.
	shedRest = 30 * time.Second
)

// grows notes that the stacks have grown, or are about to. mu is held.
func (c *conn) growsLocked() {
	if !c.stacksGrown {
		c.stacksGrown = true
		c.p.shedLater()
	}
}

// stacks is what the pipe knows of them.
type stacks struct {
	due       atomic.Bool  // they will be looked after
	shed      atomic.Int64 // connections' that have been shed since the latest collection for it
	collected state        // that has been
}

func (p *Pipe) shedLater() {
	if p.ctx.Err() == nil && p.stacks.due.CompareAndSwap(false, true) {
		time.AfterFunc(shedPause, p.shedStacks)
	}
}

// shedStacks looks after the connections whose stacks have grown, until there are
// none.
func (p *Pipe) shedStacks() {
	p.stacks.due.Store(false)
	left, now := false, 0
	for _, c := range p.all() {
		switch c.shed() {
		case shedDone:
			now++
		case shedNotYet:
			left = true
		}
	}
	collected := &p.stacks.collected
	switch {
	case p.stacks.shed.Add(int64(now)) < shedMany, now > 0: // those of now have yet to wake
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

type shedding uint8

const (
	shedNothing shedding = iota
	shedNotYet
	shedDone
)

// shed has the connection shed its stacks if they have grown and it is idle.
func (c *conn) shed() shedding {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.stacksGrown || c.end.done():
		return shedNothing
	case c.hasWorkLocked() || time.Since(c.idleSince) < shedAfter:
		return shedNotYet
	}
	c.stacksGrown = false
	c.queue.shrink()
	c.client.Wake()
	if c.app != nil {
		c.app.Wake()
	}
	return shedDone
}
