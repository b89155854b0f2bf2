package agent

import (
	"context"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// phases is the state of the termination for hooks that wait for it, probes and metrics.
type phases struct {
	mu     sync.Mutex // guards what follows
	isUp   bool
	starts bool // the app does not accept connections yet
	phase  drain.Phase
	began  time.Time     // the latest termination; zero before the first
	ended  time.Time     // zero during a termination
	grace  time.Duration // of the termination
	hooked bool          // SIGTERM arrived after a hook's drain was complete
	change chan struct{} // closed and replaced at every change
}

func newPhases() *phases { return &phases{change: make(chan struct{})} }

// ready enters Serving, at the start or after a cancelled drain.
func (p *phases) ready() { p.set(func() { p.isUp, p.phase = true, drain.Serving }) }

// awaitApp delays readiness until appAccepts.
func (p *phases) awaitApp()   { p.set(func() { p.starts = true }) }
func (p *phases) appAccepts() { p.set(func() { p.starts = false }) }

func (p *phases) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.change)
	p.change = make(chan struct{})
}

// watcher records one termination.
func (p *phases) watcher(grace time.Duration) drain.Watcher {
	p.set(func() { p.began, p.ended, p.grace = time.Now(), time.Time{}, grace })
	return drain.Watcher{Phase: func(now drain.Phase) {
		p.set(func() {
			if now == drain.Done {
				p.ended, p.hooked = time.Now(), p.phase == drain.Drained
			}
			p.phase = now
		})
	}}
}

// begins waits until a termination begins, for atMost or until ctx ends, and reports whether it has.
func (p *phases) begins(ctx context.Context, atMost time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	for {
		p.mu.Lock()
		phase, change := p.phase, p.change
		p.mu.Unlock()
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

// isEnding reports whether a termination has begun and was not cancelled.
func (p *phases) isEnding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase != drain.Serving
}

// isDone reports whether the termination is complete, SIGTERM included.
func (p *phases) isDone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.phase == drain.Done
}

// drained waits until the drain is complete. It returns errNotDrained when the drain was cancelled.
func (p *phases) drained(ctx context.Context) error {
	begun := false
	for {
		p.mu.Lock()
		phase, change := p.phase, p.change
		p.mu.Unlock()
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

// endedAfterDrained reports whether SIGTERM arrived only after a hook's drain was complete.
func (p *phases) endedAfterDrained() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hooked
}

// snapshot is the state for metrics and probes.
type snapshot struct {
	up        bool
	starts    bool // the app does not accept connections yet
	phase     drain.Phase
	draining  bool
	duration  time.Duration // of the current drain, or of the latest
	remaining time.Duration // until the platform's SIGKILL; only while draining
}

func (p *phases) snapshot() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := snapshot{up: p.isUp, starts: p.starts, phase: p.phase}
	switch {
	case p.began.IsZero():
	case p.ended.IsZero():
		s.draining = true
		s.duration = time.Since(p.began)
		s.remaining = max(0, p.grace-s.duration)
	default:
		s.duration = p.ended.Sub(p.began)
	}
	return s
}
