// Package budget bounds the memory of requests that are not complete.
//
// Each connection may hold little before its request passes: a head, a header block, a ClientHello, a queue. All
// together hold no more than the budget, which is a part of the process's memory. Beyond it the connection is ended
// whose request has been unfinished for the longest time, of those that hold much if there are such. A request that is
// being served is not touched.
//
// A connection that waits without a buffer, and one whose request arrives in one piece, do not come here.
package budget

import (
	"container/list"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Budget counts the bytes that unfinished requests hold.
type Budget struct {
	limit   int64
	held    atomic.Int64
	leaving atomic.Int64 // bytes of connections that are to end, and have not released them
	leavers atomic.Int64 // how many these are

	mu    sync.Mutex // guards the fields below, and the share of each connection
	lists [groups]queue
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget { return &Budget{limit: limit} }

// Share is a connection's part of a budget.
type Share struct {
	// Owner is woken to end the connection.
	Owner interface{ Wake() }

	held    int // as it was accounted for last; belongs to the goroutine that calls Hold
	bytes   int
	left    int // bytes, when it was evicted
	group   Group
	at      *list.Element // nil if it is in no list
	evicted atomic.Bool   // it is to end, and its bytes no longer count
}

// Held is the connection's memory at the last Hold, bytes.
func (s *Share) Held() int { return s.held }

// IsEvicted reports whether the connection is to end.
func (s *Share) IsEvicted() bool { return s.evicted.Load() }

// Group is the class of a connection, from which the one to be ended is chosen. The sizes keep a client that sends a
// small head, or begins a handshake, apart from those that send all they may.
type Group uint8

const (
	small       Group = iota // a first buffer, a handshake
	medium                   // a large buffer
	large                    // more
	AmongOthers              // its other requests are served, and would be ended too: the last to be ended
	groups
	Served = groups // not ended
)

const (
	maxSmall  = 32 << 10
	maxMedium = 80 << 10
)

// Unfinished is the group of a connection of which nothing is served.
func Unfinished(bytes int) Group {
	switch {
	case bytes <= maxSmall:
		return small
	case bytes <= maxMedium:
		return medium
	}
	return large
}

// queue is the shares of a group, the oldest first.
type queue struct {
	list.List
	bytes int
}

func (l *queue) add(s *Share) {
	s.at = l.PushBack(s)
	l.bytes += s.bytes
}

func (l *queue) remove(s *Share) {
	l.Remove(s.at)
	s.at = nil
	l.bytes -= s.bytes
}

// Add counts bytes that are not a connection's share: of queues and of large buffers.
func (b *Budget) Add(bytes int) { b.held.Add(int64(bytes)) }

// IsFull reports whether what can wait, or can do with less, should.
func (b *Budget) IsFull() bool { return b.held.Load() >= b.limit }

// Held is how many bytes are held.
func (b *Budget) Held() int64 { return b.held.Load() }

// Limit is how many bytes may be held.
func (b *Budget) Limit() int64 { return b.limit }

// Leaving is how many connections are to end and still hold bytes, and how many bytes.
func (b *Budget) Leaving() (connections, bytes int64) { return b.leavers.Load(), b.leaving.Load() }

// Hold sets the memory that a connection holds. If that is too much, it ends unfinished ones. It returns false if that
// is the connection itself, or if it was ended meanwhile: the caller ends it.
func (b *Budget) Hold(s *Share, bytes int, in Group) bool {
	grows := bytes > s.held && bytes > maxSmall
	s.held = bytes
	ok := b.set(s, bytes, in)
	// What ends needs a processor to release its bytes, no client. Without a pause more would come meanwhile.
	for try := 0; ok && bytes > maxSmall && b.leaving.Load() > b.limit/8; try++ {
		if try == 2*Yields {
			return !grows || b.leaving.Load() < b.limit/2 // else it would come on top of what is still held
		}
		if s.IsEvicted() { // meanwhile
			return false
		}
		if try < Yields {
			runtime.Gosched()
		} else {
			time.Sleep(time.Millisecond)
		}
	}
	return ok
}

// Yields is how often others get the processor before more is held or accepted.
const Yields = 100

func (b *Budget) set(s *Share, bytes int, in Group) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.IsEvicted() {
		if bytes > 0 && in != Served {
			return false
		}
		s.evicted.Store(false) // it has ended, or its request has become complete in time
		b.leaving.Add(-int64(s.left))
		b.leavers.Add(-1)
		s.left = 0
	}
	b.held.Add(int64(bytes - s.bytes))
	if s.at != nil {
		if bytes == 0 || in != s.group {
			b.lists[s.group].remove(s)
		} else {
			b.lists[in].bytes += bytes - s.bytes
		}
	}
	s.bytes, s.group = bytes, in
	if bytes > 0 && in != Served && s.at == nil {
		b.lists[in].add(s)
	}
	for b.held.Load() > b.limit {
		from := b.nextLocked()
		if from == nil {
			break
		}
		b.evictLocked(from)
	}
	return !s.IsEvicted()
}

// nextLocked is the list from which the next is ended: of those that hold a part of the budget worth ending, that of
// the largest; nil if all are empty.
func (b *Budget) nextLocked() (next *queue) {
	for _, in := range []Group{large, medium, small, AmongOthers} {
		l := &b.lists[in]
		switch {
		case l.Len() == 0:
		case int64(l.bytes) >= b.limit/8:
			return l
		case next == nil:
			next = l
		}
	}
	return next
}

// evictLocked wakes the owner of the oldest, which ends the connection.
func (b *Budget) evictLocked(from *queue) {
	s := from.Front().Value.(*Share)
	from.remove(s)
	b.held.Add(-int64(s.bytes))
	b.leaving.Add(int64(s.bytes))
	b.leavers.Add(1)
	s.bytes, s.left = 0, s.bytes
	s.evicted.Store(true)
	s.Owner.Wake()
}

// EvictOldest makes room for another connection. It returns false if nothing is unfinished, or only next to what is
// served.
func (b *Budget) EvictOldest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := b.nextLocked()
	if from == nil || from == &b.lists[AmongOthers] {
		return false
	}
	b.evictLocked(from)
	return true
}
