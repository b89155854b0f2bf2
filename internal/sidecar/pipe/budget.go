package pipe

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Each connection may hold little before its request passes: a head, a header block, a ClientHello, a queue. All
// together hold no more than the budget, which is a part of the process's memory. Beyond it the connection is ended
// whose request has been unfinished for the longest time, of those that hold much if there are such. A request that is
// being served is not touched.
//
// A connection that waits without a buffer, and one whose request arrives in one piece, do not come here.

// budget counts the bytes that unfinished requests hold.
type budget struct {
	limit   int64
	held    atomic.Int64
	leaving atomic.Int64 // bytes of connections that are to end, and have not released them
	leavers atomic.Int64 // how many these are

	mu    sync.Mutex // guards what follows, and the share of each connection
	lists [groups]shares
}

// share is a connection's part of a budget. held belongs to up's goroutine.
type share struct {
	held       int // as it was accounted for last
	bytes      int
	left       int // bytes, when it was evicted
	group      group
	list       *shares // nil if it is in none
	next, prev *conn
	evicted    atomic.Bool // it is to end, and its bytes no longer count
}

// group is what an unfinished connection is ended with. The sizes keep a client that sends a small head, or begins a
// handshake, apart from those that send all they may.
type group uint8

const (
	small       group = iota // a first buffer, a handshake
	medium                   // a large buffer
	large                    // more
	amongOthers              // its other requests are served, and would be ended too: the last to be ended
	groups
	served = groups // not ended
)

const (
	mostSmall  = 32 << 10
	mostMedium = 80 << 10
)

// unfinished is the group of a connection of which nothing is served.
func unfinished(bytes int) group {
	switch {
	case bytes <= mostSmall:
		return small
	case bytes <= mostMedium:
		return medium
	}
	return large
}

// shares is a list, the oldest first.
type shares struct {
	first, last *conn
	bytes       int
}

func (l *shares) push(c *conn) {
	s := &c.share
	s.list, s.prev, s.next = l, l.last, nil
	if l.last != nil {
		l.last.share.next = c
	} else {
		l.first = c
	}
	l.last = c
	l.bytes += s.bytes
}

func (l *shares) remove(c *conn) {
	s := &c.share
	if s.prev != nil {
		s.prev.share.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.share.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.list, s.prev, s.next = nil, nil, nil
	l.bytes -= s.bytes
}

// add counts bytes that are not a connection's share: of queues and of large buffers.
func (b *budget) add(bytes int) { b.held.Add(int64(bytes)) }

// isFull reports whether what can wait, or can do with less, should.
func (b *budget) isFull() bool { return b.held.Load() >= b.limit }

// hold sets what a connection holds. If that is too much, it ends unfinished ones. It returns false if that is the
// connection itself, or if it was ended meanwhile: the caller ends it.
func (b *budget) hold(c *conn, bytes int, in group) bool {
	ok := b.set(c, bytes, in)
	// What ends needs a processor to release its bytes, no client. Without a pause more would come meanwhile.
	for try := 0; ok && bytes > mostSmall && try < 2*yields && b.leaving.Load() > b.limit/8; try++ {
		if c.share.evicted.Load() { // meanwhile
			return false
		}
		if try < yields {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	return ok
}

// yields is how often others get the processor before more is held or accepted.
const yields = 100

func (b *budget) set(c *conn, bytes int, in group) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &c.share
	if s.evicted.Load() {
		if bytes > 0 && in != served {
			return false
		}
		s.evicted.Store(false) // it has ended, or its request has become complete in time
		b.leaving.Add(-int64(s.left))
		b.leavers.Add(-1)
		s.left = 0
	}
	b.held.Add(int64(bytes - s.bytes))
	if s.list != nil {
		if bytes == 0 || in != s.group {
			s.list.remove(c)
		} else {
			s.list.bytes += bytes - s.bytes
		}
	}
	s.bytes, s.group = bytes, in
	if bytes > 0 && in != served && s.list == nil {
		b.lists[in].push(c)
	}
	for b.held.Load() > b.limit {
		from := b.nextLocked()
		if from == nil {
			break
		}
		b.evictLocked(from.first)
	}
	return !s.evicted.Load()
}

// nextLocked is the list from which the next is ended: of those that hold a part of the budget worth ending, that of
// the largest; nil if all are empty.
func (b *budget) nextLocked() (next *shares) {
	for _, in := range []group{large, medium, small, amongOthers} {
		l := &b.lists[in]
		switch {
		case l.first == nil:
		case in != amongOthers && int64(l.bytes) >= b.limit/8:
			return l
		case next == nil:
			next = l
		}
	}
	return next
}

// evictLocked wakes up of the connection, which ends it.
func (b *budget) evictLocked(c *conn) {
	s := &c.share
	s.list.remove(c)
	b.held.Add(-int64(s.bytes))
	b.leaving.Add(int64(s.bytes))
	b.leavers.Add(1)
	s.bytes, s.left = 0, s.bytes
	s.evicted.Store(true)
	c.client.Wake()
}

// evictOldest makes room for another connection. It returns false if nothing is unfinished, or only next to what is
// served.
func (b *budget) evictOldest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.nextLocked()
	if from == nil || from == &b.lists[amongOthers] {
		return false
	}
	b.evictLocked(from.first)
	return true
}
