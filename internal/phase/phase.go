// Package phase has the state of a termination that others wait for: preStop hooks, probes, metrics.
package phase

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/lastcall-dev/lastcall/drain"
)

// State guards data, and wakes those who wait for its changes. The zero value is ready for use.
type State struct {
	sync.Mutex               // guards the caller's data
	changed    chan struct{} // closed at the next change; nil while no caller waits
	pushed     chan struct{} // the channel of Changes; nil before
}

// Set calls f, which changes the data.
func (s *State) Set(f func()) {
	s.Lock()
	defer s.Unlock()
	f()
	s.Changed()
}

// Changed is called after a change of the data, with the lock held.
func (s *State) Changed() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	if s.pushed != nil {
		select {
		case s.pushed <- struct{}{}:
		default: // merged with the previous one
		}
	}
}

// Changes is that of drain.DataPlane: it delivers a value after every change, and one at first.
func (s *State) Changes() <-chan struct{} {
	s.Lock()
	defer s.Unlock()
	if s.pushed == nil {
		s.pushed = make(chan struct{}, 1)
		s.pushed <- struct{}{}
	}
	return s.pushed
}

// Get calls f, which reads the data.
func (s *State) Get(f func()) {
	s.Lock()
	defer s.Unlock()
	f()
}

// Await waits until is returns true, or until ctx ends. is reads the data.
func (s *State) Await(ctx context.Context, is func() bool) error {
	s.Lock()
	defer s.Unlock()
	return s.Wait(ctx, is)
}

// Wait is Await with the lock held. While it waits, it releases the lock.
func (s *State) Wait(ctx context.Context, is func() bool) (err error) {
	for err == nil && !is() {
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.Lock()
	}
	return err
}

// ErrCancelled is returned by Reached after a drain that was cancelled.
var ErrCancelled = errors.New("the drain was cancelled")

// Reached waits until the phase now, a part of the data, is one of these or drain.Done. It returns ErrCancelled when
// the data plane serves again after a drain.
func (s *State) Reached(ctx context.Context, now *drain.Phase, any ...drain.Phase) error {
	begun, cancelled := false, false
	err := s.Await(ctx, func() bool {
		cancelled = begun && *now == drain.Serving
		begun = begun || *now != drain.Serving
		return cancelled || *now == drain.Done || slices.Contains(any, *now)
	})
	if cancelled {
		return ErrCancelled
	}
	return err
}
