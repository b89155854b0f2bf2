package agent

import (
	"context"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// way is where the termination stands, for all who want to know: hooks that
// wait for it, probes and metrics.
type way struct {
	mu     sync.Mutex // guards what follows
	isUp   bool
	starts bool // the app does not accept connections yet
	phase  drain.Phase
	began  time.Time     // of the latest termination; zero before the first
	ended  time.Time     // of it; zero while it lasts
	grace  time.Duration // that it has
	hooked bool          // the end of it came when all was drained already
	change chan struct{} // closed and replaced at every change
}

func newWay() *way { return &way{change: make(chan struct{})} }

// ready begins to serve, at the start or again.
func (w *way) ready() { w.set(func() { w.isUp, w.phase = true, drain.Serving }) }

// awaitApp holds readiness back until appAccepts.
func (w *way) awaitApp()   { w.set(func() { w.starts = true }) }
func (w *way) appAccepts() { w.set(func() { w.starts = false }) }

func (w *way) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.change)
	w.change = make(chan struct{})
}

// watcher follows one termination.
func (w *way) watcher(grace time.Duration) drain.Watcher {
	w.set(func() { w.began, w.ended, w.grace = time.Now(), time.Time{}, grace })
	return drain.Watcher{Phase: func(p drain.Phase) {
		w.set(func() {
			if p == drain.Done {
				w.ended, w.hooked = time.Now(), w.phase == drain.Drained
			}
			w.phase = p
		})
	}}
}

// begins waits until a termination begins, for atMost or until ctx ends, and says whether
// it has.
func (w *way) begins(ctx context.Context, atMost time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		w.mu.Lock()
		phase, change := w.phase, w.change
		w.mu.Unlock()
		if phase != drain.Serving {
			return true
		}
		select {
		case <-change:
		case <-ctx.Done():
			return false
		}
	}
}

// isEnding says whether a termination has begun, and was not cancelled.
func (w *way) isEnding() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase != drain.Serving
}

// isDone says whether the termination is over, SIGTERM included.
func (w *way) isDone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phase == drain.Done
}

// drained waits until nothing is left that a drain waits for. It returns
// errNotDrained when the drain was taken back.
func (w *way) drained(ctx context.Context) error {
	begun := false
	for {
		w.mu.Lock()
		phase, change := w.phase, w.change
		w.mu.Unlock()
		switch {
		case phase == drain.Drained, phase == drain.Done:
			return nil
		case phase == drain.Serving && begun:
			return errNotDrained
		case phase != drain.Serving:
			begun = true
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endedAfterDrained says whether the end came only after a hook's drain was over.
func (w *way) endedAfterDrained() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hooked
}

// snapshot is the way for metrics and probes.
type snapshot struct {
	up        bool
	starts    bool // the app does not accept connections yet
	phase     drain.Phase
	draining  bool
	duration  time.Duration // of the drain under way, or of the latest
	remaining time.Duration // until the platform's SIGKILL; only while draining
}

func (w *way) snapshot() snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := snapshot{up: w.isUp, starts: w.starts, phase: w.phase}
	switch {
	case w.began.IsZero():
	case w.ended.IsZero():
		s.draining = true
		s.duration = time.Since(w.began)
		s.remaining = max(0, w.grace-s.duration)
	default:
		s.duration = w.ended.Sub(w.began)
	}
	return s
}
