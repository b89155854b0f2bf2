package pipe

// queue holds the requests of a connection that were forwarded and are not yet
// answered, the oldest first. It is a ring, so that taking the oldest one costs the
// same however many follow it. Request lines are kept in the slots for reuse. The
// zero value is empty.
type queue struct {
	slots []request // its length is zero or a power of two
	first int       // the index of the oldest request
	n     int       // how many there are
	held  int       // bytes that the requests hold beside their slots, about
}

const (
	// maxQueued is how many requests of a connection wait for the app at most. The
	// client's next request stays in its socket until the queue has been emptied by
	// half. Few clients pipeline, and those that do send a few requests ahead; an app
	// serves one at a time. A full queue takes 12 KiB and the request lines.
	maxQueued = 64

	// maxQueuedBytes is how many bytes the queued requests of a connection hold at
	// most: their request lines, and what the access log says of them. One request is
	// queued however much it holds.
	maxQueuedBytes = 64 << 10
)

func (q *queue) len() int { return q.n }

// at is request i, counted from the oldest.
func (q *queue) at(i int) *request { return &q.slots[(q.first+i)&(len(q.slots)-1)] }

// isFull says whether the next request has to wait. needs is what it will hold.
func (q *queue) isFull(needs int) bool {
	return q.n >= maxQueued || q.n > 0 && q.held+needs > maxQueuedBytes
}

// isLow says whether a queue that was full has room again: not for one request but for
// many, for each time costs waking the reader.
func (q *queue) isLow() bool { return q.n <= maxQueued/2 && q.held <= maxQueuedBytes/2 }

// push adds a request, with the line of a former one to write over.
func (q *queue) push() *request {
	if q.n == len(q.slots) {
		grown := make([]request, max(1, 2*len(q.slots)))
		for i := range q.n {
			grown[i] = *q.at(i)
		}
		q.slots, q.first = grown, 0
	}
	q.n++
	r := q.at(q.n - 1)
	*r = request{line: r.line[:0]}
	return r
}

// hold notes how much the youngest request holds.
func (q *queue) hold(bytes int) {
	q.at(q.n - 1).held = bytes
	q.held += bytes
}

// pop takes the oldest request.
func (q *queue) pop() {
	q.forget(q.at(0))
	q.first = (q.first + 1) & (len(q.slots) - 1)
}

// drop takes the youngest request back and returns it.
func (q *queue) drop() request {
	r := q.at(q.n - 1)
	dropped := *r
	r.line = nil // it goes with the request
	q.forget(r)
	return dropped
}

// forget empties the slot of a request that is first or last.
func (q *queue) forget(r *request) {
	q.held -= r.held
	q.n--
	*r = request{line: r.line[:0]}
}

// shrink lets go of the slots of an empty queue, but for those that a client needs which
// does not pipeline.
func (q *queue) shrink() {
	if q.n == 0 && len(q.slots) > 1 {
		*q = queue{}
	}
}

// take empties the queue and returns what was in it.
func (q *queue) take() []request {
	var all []request
	for i := range q.n {
		all = append(all, *q.at(i))
	}
	*q = queue{}
	return all
}
