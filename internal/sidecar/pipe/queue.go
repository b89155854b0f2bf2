package pipe

// queue holds the requests of a connection that were forwarded and are not answered yet, the oldest first. It is a
// ring, so that removing the oldest costs the same however many follow. Slots keep their request lines for reuse. The
// zero value is empty.
type queue struct {
	slots []request // its length is zero or a power of two
	first int       // the index of the oldest request
	n     int       // how many there are
	held  int       // about how many bytes the requests hold in addition to their slots

	charged int // bytes of it that the budget counts
}

const (
	// maxQueued is how many requests of a connection wait for the app at most. The client's next request stays in its
	// socket until the queue is half empty. Few clients pipeline, and those send a few requests ahead. A full queue
	// takes 12 KiB and the request lines.
	maxQueued = 64

	// maxQueuedBytes bounds the request lines and access log fields in a queue. One request is queued whatever it holds.
	maxQueuedBytes = 64 << 10
)

func (q *queue) len() int { return q.n }

// at is request i, counted from the oldest.
func (q *queue) at(i int) *request { return &q.slots[(q.first+i)&(len(q.slots)-1)] }

// isFull reports whether the next request, which holds needs bytes, has to wait.
func (q *queue) isFull(needs int) bool {
	return q.n >= maxQueued || q.n > 0 && q.held+needs > maxQueuedBytes
}

// isLow reports whether a full queue has room for many requests again: each time the reader must be woken.
func (q *queue) isLow() bool { return q.n <= maxQueued/2 && q.held <= maxQueuedBytes/2 }

// push adds a request, and reuses the line of a former one.
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

// hold notes how much the newest request holds.
func (q *queue) hold(bytes int) {
	q.at(q.n - 1).held = bytes
	q.held += bytes
}

// pop removes the oldest request.
func (q *queue) pop() {
	q.forget(q.at(0))
	q.first = (q.first + 1) & (len(q.slots) - 1)
}

// drop removes the newest request and returns it.
func (q *queue) drop() request {
	r := q.at(q.n - 1)
	dropped := *r
	r.line = nil // it goes with the request
	q.forget(r)
	return dropped
}

// forget empties the slot of the oldest or newest request.
func (q *queue) forget(r *request) {
	q.held -= r.held
	q.n--
	*r = request{line: r.line[:0]}
}

// shrink frees the slots of an empty queue, except the one that a client without pipelining needs.
func (q *queue) shrink() {
	if q.n == 0 && len(q.slots) > 1 {
		*q = queue{charged: q.charged}
	}
}

// slotMemory is what a slot takes, with a request line, bytes.
const slotMemory = 384

// recharge returns by how much the budget's count of the queue changes: of a client that pipelines.
func (q *queue) recharge() (change int) {
	now := 0
	if len(q.slots) > 1 {
		now = (len(q.slots)-1)*slotMemory + q.held
	}
	change, q.charged = now-q.charged, now
	return change
}

// take removes all requests and returns them.
func (q *queue) take() []request {
	var all []request
	for i := range q.n {
		all = append(all, *q.at(i))
	}
	*q = queue{charged: q.charged}
	return all
}
