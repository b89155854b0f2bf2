package statusserver

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Slots divide a limited amount of something, such as connections or bytes, among the addresses that use it. If there
// is too little, the oldest slot of the address with the most is ended: an address that takes everything displaces its
// own.
type Slots struct {
	limit     int
	keepFirst bool // the first slot of an address stays, and the oldest of the others is ended

	mu    sync.Mutex // guards the rest, and the slots' n
	n     int
	taken map[netip.Addr]*taker
}

// taker is an address with slots, the oldest first.
type taker struct {
	n     int
	slots []*Slot
}

// Slot is the share of one user.
type Slot struct {
	of   *Slots
	from netip.Addr
	n    int
	end  func()
	over sync.Once // end or Release was called
}

// NewSlots returns slots of which limit can be taken in all.
func NewSlots(limit int) *Slots { return &Slots{limit: limit, taken: make(map[netip.Addr]*taker)} }

// Take takes n for a peer, host:port. end ends its user; it is called at most once, and not after Release.
func (c *Slots) Take(peer string, n int, end func()) *Slot {
	at, _ := netip.ParseAddrPort(peer) // all peers of a Unix socket are one address
	g := &Slot{of: c, from: at.Addr().Unmap(), end: end}
	c.mu.Lock()
	mine := c.taken[g.from]
	if mine == nil {
		mine = &taker{}
		c.taken[g.from] = mine
	}
	mine.slots = append(mine.slots, g)
	c.mu.Unlock()
	g.Grow(n)
	return g
}

// Grow takes n more, which may be 0; false if the slot was ended.
func (g *Slot) Grow(n int) bool {
	c := g.of
	c.mu.Lock()
	mine := c.taken[g.from]
	if mine == nil || !slices.Contains(mine.slots, g) {
		c.mu.Unlock()
		return false
	}
	g.n, mine.n, c.n = g.n+n, mine.n+n, c.n+n
	isTaken := true
	var ended []*Slot
	for c.n > c.limit {
		victim := c.oldestOfMost()
		c.remove(victim)
		ended = append(ended, victim)
		isTaken = isTaken && victim != g
	}
	c.mu.Unlock()
	for _, victim := range ended {
		victim.over.Do(victim.end)
	}
	return isTaken
}

// oldestOfMost is the slot to end. The caller holds mu.
func (c *Slots) oldestOfMost() *Slot {
	most := &taker{}
	for _, one := range c.taken {
		if one.n > most.n {
			most = one
		}
	}
	if c.keepFirst && len(most.slots) > 1 {
		return most.slots[1]
	}
	return most.slots[0]
}

// remove frees a slot, once. The caller holds mu.
func (c *Slots) remove(g *Slot) {
	mine := c.taken[g.from]
	if mine == nil || !slices.Contains(mine.slots, g) {
		return
	}
	mine.slots = slices.DeleteFunc(mine.slots, func(other *Slot) bool { return other == g })
	mine.n, c.n, g.n = mine.n-g.n, c.n-g.n, 0
	if len(mine.slots) == 0 {
		delete(c.taken, g.from)
	}
}

// Release frees the slot. It waits for an end that has begun, which may use what the user frees next.
func (g *Slot) Release() {
	g.over.Do(func() {})
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.of.remove(g)
}

// Admit bounds the open connections of a server that accepts them itself: it returns the connection to serve. At the
// limit the oldest one of the address with the most is ended, so a new one is always served.
func Admit(limit int) func(net.Conn) net.Conn {
	l := &listener{open: NewSlots(limit)}
	return func(c net.Conn) net.Conn { return l.hold(c) }
}

const (
	// maxScrapes is for a pair of Prometheus servers and people with curl.
	maxScrapes = 8

	// maxScrapeTime bounds the timeout that a scraper may request.
	maxScrapeTime = time.Minute
)

// Scrapes bounds the concurrent scrapes of h, and the time of each to the scraper's timeout. If there is one too many,
// the oldest of the address with the most is cancelled, and its connection closed, which ends a write that waits for
// the peer.
func Scrapes(h http.Handler) http.Handler {
	under := NewSlots(maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), min(maxScrapeTime, max(WriteTime, ScrapeTimeout(r))))
		defer cancel()
		until, _ := ctx.Deadline()
		_ = http.NewResponseController(w).SetWriteDeadline(until)
		conn, _ := ctx.Value(connKey{}).(net.Conn)
		defer under.Take(r.RemoteAddr, 1, func() {
			if cancel(); conn != nil {
				_ = conn.Close()
			}
		}).Release()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ScrapeTimeout is the scraper's timeout; 0 when it does not send one.
func ScrapeTimeout(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 {
		return 0
	}
	return time.Duration(min(seconds, maxScrapeTime.Seconds()) * float64(time.Second))
}
