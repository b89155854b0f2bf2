package webhook

import (
	"context"
	"slices"
	"sync"
)

// shares divide a limited amount among the addresses that use it: an address may hold at most as much as is still free.
// So one client alone gets half, and another one always finds a share.
type shares struct {
	mu      sync.Mutex // guards what follows
	free    int
	held    map[string]int
	waiting []*waiter // in order of arrival, limited by their addresses
}

type waiter struct {
	address string
	granted chan struct{}
}

func newShares(total int) *shares { return &shares{free: total, held: map[string]int{}} }

// take reserves n for the address; false if that exceeds its share.
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

// wait reserves one as soon as possible; false if ctx ends before.
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

// give returns n of the address.
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
