package pipe

// A connection's first goroutine is one that has served another before, if there is one: its stack has grown already.

// spareWorkers is how many wait for a connection at most. A stack of theirs takes 8 KB, until a garbage collection.
const spareWorkers = 64

// start serves a connection in a goroutine.
func (p *Pipe) start(c *conn) {
	select {
	case p.work <- c:
	default:
		go p.serveAll(c)
	}
}

// serveAll serves a connection and those that come later.
func (p *Pipe) serveAll(c *conn) {
	for c != nil {
		c.serve()
		if p.spare.Add(1) > spareWorkers {
			p.spare.Add(-1)
			return
		}
		c = <-p.work // nil when the pipe has ended
		p.spare.Add(-1)
	}
}
