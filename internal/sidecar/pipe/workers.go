package pipe

// The first goroutines of a connection are those that have served another before, if any wait: their stacks have grown
// already.

// spareWorkers is how many wait for a connection at most. A stack of theirs takes 8 KB, until a garbage collection.
const spareWorkers = 64

// start runs one side of a connection in a goroutine.
func (p *Pipe) start(side func()) {
	select {
	case p.work <- side:
	default:
		go p.runAll(side)
	}
}

// runAll runs it and those that come later, until the pipe ends.
func (p *Pipe) runAll(side func()) {
	for {
		side()
		if p.spare.Add(1) > spareWorkers {
			p.spare.Add(-1)
			return
		}
		select {
		case side = <-p.work:
			p.spare.Add(-1)
		case <-p.ctx.Done():
			return
		}
	}
}
