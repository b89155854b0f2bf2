package webhook

import (
	"context"
	"slices"
	"sync"
)

// shares divide something bounded among the addresses that use it: an address may hold no more than what is
// free beside its own. So one client alone gets half, and whatever it does, another one finds something left.
type shares struct {
	mu      sync.Mutex // guards what follows
	free    int
	held    map[string]int
	waiting []*waiter // the first come is the first served, as far as its address may
}

type waiter struct {
	address string
	granted chan struct{}
}

func newShares(total int) *shares { return &shares{free: total, held: map[string]int{}} }

// take gives n to the address; false when that is too much for it now.
func (s *shares) take(address string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(address, n)
}

func (s *shares) takeLocked(address string, n int) bool {
	if s.held[address]+n > s.free-n {
		return false
	}
	s.free -= n
	s.held[address] += n
	return true
}

// wait takes one as soon as that is possible; false when ctx ends before.
func (s *shares) wait(ctx context.Context, address string) bool {
	s.mu.Lock()
	if s.takeLocked(address, 1) {
		s.mu.Unlock()
		return true
	}
	w := &waiter{address, make(chan struct{})}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.granted:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, w)
	if i < 0 {
		return true // at the same moment
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return false
}

// give takes n back from the address.
func (s *shares) give(address string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.held[address] -= n; s.held[address] == 0 {
		delete(s.held, address)
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		granted := s.takeLocked(w.address, 1)
		if granted {
			close(w.granted)
		}
		return granted
	})
}
