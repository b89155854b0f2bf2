package agent

import (
	"context"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// appAccepts makes an app that starts ready.
func (p *phases) appAccepts() { p.Set(func() { p.starts = false }) }

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

// begins waits until a termination begins, for atMost or until ctx ends, and reports whether it has.
func (p *phases) begins(ctx context.Context, atMost time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	return p.Await(ctx, func() bool { return p.phase != drain.Serving }) == nil
}

// isEnding reports whether a termination has begun and was not cancelled.
func (p *phases) isEnding() bool { return p.snapshot().phase != drain.Serving }

// drained waits until the drain is complete. It returns phase.ErrCancelled when the drain was cancelled.
func (p *phases) drained(ctx context.Context) error { return p.Reached(ctx, &p.phase, drain.Drained) }

// leftToApp waits until an app may receive its SIGTERM: the drain is complete, or only the app can complete it.
func (p *phases) leftToApp(ctx context.Context) error {
	return p.Reached(ctx, &p.phase, drain.Drained, drain.Finishing)
}

// deadline is POST /deadline/TOKEN?at=TIME&from=SOURCE: SIGKILL comes at TIME (RFC 3339), sooner than the grace period
// says. The node's observer sends it from within the pod's network namespace. It begins no termination and only
// shortens one: a moment that has passed, or is no sooner than the known one, is refused (409).
func (s *status) deadline(w http.ResponseWriter, r *http.Request) {
	if !isToken(r.PathValue("token"), s.a.Status.HookToken) {
		s.refuse(w, r)
		return
	}
	from := r.URL.Query().Get("from")
	at, err := time.Parse(time.RFC3339Nano, r.URL.Query().Get("at"))
	switch {
	case err != nil || from == "" || len(from) > 32:
		http.Error(w, "must have at=2006-01-02T15:04:05.999Z and from=SOURCE of up to 32 bytes", http.StatusBadRequest)
	case !at.After(time.Now()):
		http.Error(w, "the deadline has passed", http.StatusConflict)
	case !s.a.phases.hasten(at, from, s.a.Settings.GracePeriod.Value):
		http.Error(w, "the deadline is no sooner than the known one", http.StatusConflict)
	default:
		s.a.log.Info("deadline received", "deadline_in", time.Until(at).Round(time.Millisecond), "deadline_from", from)
		s.a.requests.Send(drain.Sooner)
		answer(w, "ok\n")
	}
}
