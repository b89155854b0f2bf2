package pipe

import (
	"sync/atomic"
	"time"
)

// state is a condition of the pipe, with the time since which it holds.
type state struct{ since atomic.Pointer[time.Time] }

// begin does nothing if it holds already.
func (s *state) begin() {
	now := time.Now()
	s.since.CompareAndSwap(nil, &now)
}

func (s *state) end()        { s.since.Store(nil) }
func (s *state) holds() bool { return s.since.Load() != nil }

// lasted is for how long it has held; 0 if it does not.
func (s *state) lasted() time.Duration {
	if since := s.since.Load(); since != nil {
		return time.Since(*since)
	}
	return 0
}
