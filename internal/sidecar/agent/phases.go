package agent

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/phase"
)

// phases is the state of the termination for hooks that wait for it, probes and metrics.
type phases struct {
	phase.State
	isUp   bool
	starts bool // the app is ours and does not accept connections yet
	phase  drain.Phase
	began  time.Time    // the latest termination; zero before the first
	ended  time.Time    // zero during a termination
	cfg    drain.Config // of the termination
	hooked bool         // SIGTERM arrived after a hook's drain was complete

	sigkill     time.Time // when the platform's SIGKILL comes, if that is sooner than the grace period's end
	sigkillFrom string    // the source of that
}

// ready enters Serving, at the start or after a cancelled drain.
func (p *phases) ready() { p.Set(func() { p.isUp, p.phase = true, drain.Serving }) }

// watcher records one termination.
func (p *phases) watcher(cfg drain.Config) drain.Watcher {
	p.Set(func() {
		p.began, p.ended, p.cfg = time.Now(), time.Time{}, cfg
		if left := time.Until(p.sigkill); left > 0 {
			p.cfg.GracePeriod = min(cfg.GracePeriod, left)
		}
	})
	return drain.Watcher{Phase: func(now drain.Phase) {
		p.Set(func() {
			if now == drain.Done {
				p.ended, p.hooked = time.Now(), p.phase == drain.Drained
			}
			p.phase = now
		})
	}}
}

// hasten records that SIGKILL comes at a moment. It returns false, and changes nothing, if the grace period ends no
// later.
func (p *phases) hasten(at time.Time, from string, grace time.Duration) (isSooner bool) {
	p.Set(func() {
		began := time.Now()
		if p.phase != drain.Serving {
			began, grace = p.began, p.cfg.GracePeriod
		}
		if left := at.Sub(began); left < grace {
			isSooner, p.sigkill, p.sigkillFrom, p.cfg.GracePeriod = true, at, from, left
		}
	})
	return isSooner
}

// deadline is the latest one that hasten recorded.
func (p *phases) deadline() (at time.Time, from string) {
	p.Get(func() { at, from = p.sigkill, p.sigkillFrom })
	return at, from
}

// isEnding reports whether a termination has begun and was not cancelled.
func (p *phases) isEnding() bool { return p.snapshot().phase != drain.Serving }

// drained waits until the drain is complete. It returns phase.ErrCancelled when the drain was cancelled.
func (p *phases) drained(ctx context.Context) error { return p.Reached(ctx, &p.phase, drain.Drained) }

// leftToApp waits until an app may receive its SIGTERM: the drain is complete, or only the app can complete it.
func (p *phases) leftToApp(ctx context.Context) error {
	return p.Reached(ctx, &p.phase, drain.Drained, drain.Finishing)
}

// snapshot is the state for metrics and probes.
type snapshot struct {
	up        bool
	starts    bool // the app does not accept connections yet
	phase     drain.Phase
	draining  bool
	hooked    bool          // SIGTERM arrived after a hook's drain was complete
	duration  time.Duration // of the current drain, or of the latest
	remaining time.Duration // until the platform's SIGKILL, negative after it; only while draining
}

func (p *phases) snapshot() (s snapshot) {
	p.Get(func() {
		s = snapshot{up: p.isUp, starts: p.starts, phase: p.phase, hooked: p.hooked}
		switch {
		case p.began.IsZero():
		case p.ended.IsZero():
			s.draining = true
			s.duration = time.Since(p.began)
			s.remaining = p.cfg.GracePeriod - s.duration
		default:
			s.duration = p.ended.Sub(p.began)
		}
	})
	return s
}
