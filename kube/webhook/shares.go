package webhook

import (
	"slices"
	"sync"
)

// shares divide a limited amount among the addresses that use it. If too little is free, the address that holds the most
// loses its oldest share. An address that would itself hold the most gets nothing. So silent clients hold nothing that
// another client needs.
type shares struct {
	mu   sync.Mutex // guards what follows, and the shares' n and isEnded
	free int
	held map[string]*holder
}

// holder is an address with shares, the oldest first.
type holder struct {
	sum int
	all []*share
}

// share is what one request holds.
type share struct {
	of      *shares
	from    string
	n       int
	end     func()
	isEnded bool // another address has needed it
}

func newShares(total int) *shares { return &shares{free: total, held: map[string]*holder{}} }

// open makes an empty share for the address. end is called if it is ended for another address; it must not block.
func (s *shares) open(from string, end func()) *share { return &share{of: s, from: from, end: end} }

// take adds n to the share; false if that is not possible.
func (h *share) take(n int) bool {
	s := h.of
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := 0
	if own := s.held[h.from]; own != nil {
		mine = own.sum
	}
	for s.free < n && !h.isEnded {
		var most *holder
		for _, other := range s.held {
			if most == nil || other.sum > most.sum {
				most = other
			}
		}
		if most == nil || most.sum < mine+n || most == s.held[h.from] {
			return false
		}
		oldest := most.all[0]
		oldest.isEnded = true
		oldest.giveLocked()
		oldest.end()
	}
	if h.isEnded {
		return false
	}
	own := s.held[h.from]
	if own == nil {
		own = &holder{}
		s.held[h.from] = own
	}
	if h.n == 0 {
		own.all = append(own.all, h)
	}
	s.free, h.n, own.sum = s.free-n, h.n+n, own.sum+n
	return true
}

// give returns all of it.
func (h *share) give() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.giveLocked()
}

func (h *share) giveLocked() {
	own := h.of.held[h.from]
	if h.n == 0 {
		return
	}
	own.all = slices.DeleteFunc(own.all, func(other *share) bool { return other == h })
	if own.sum -= h.n; own.sum == 0 {
		delete(h.of.held, h.from)
	}
	h.of.free += h.n
	h.n = 0
}

// wasEnded reports whether another address has needed the share.
func (h *share) wasEnded() bool {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	return h.isEnded
}
