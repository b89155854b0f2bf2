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
	situation
}

// situation is the state at a moment.
type situation struct {
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

func (p *phases) now() (s situation) {
	p.Get(func() { s = p.situation })
	return s
}

// duration is the time since the current termination began, or how long the latest took.
func (s situation) duration() time.Duration {
	switch {
	case s.began.IsZero():
		return 0
	case s.ended.IsZero():
		return time.Since(s.began)
	}
	return s.ended.Sub(s.began)
}

// remaining is the time until the platform's SIGKILL, 0 after it; false if there is no termination.
func (s situation) remaining() (time.Duration, bool) {
	return max(0, s.cfg.GracePeriod-s.duration()), !s.began.IsZero() && s.ended.IsZero()
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
	now := p.now()
	return now.sigkill, now.sigkillFrom
}

// isEnding reports whether a termination has begun and was not cancelled.
func (p *phases) isEnding() bool { return p.now().phase != drain.Serving }

// drained waits until the drain is complete. It returns phase.ErrCancelled when the drain was cancelled.
func (p *phases) drained(ctx context.Context) error { return p.Reached(ctx, &p.phase, drain.Drained) }

// leftToApp waits until an app may receive its SIGTERM: the drain is complete, or only the app can complete it.
func (p *phases) leftToApp(ctx context.Context) error {
	return p.Reached(ctx, &p.phase, drain.Drained, drain.Finishing)
}
