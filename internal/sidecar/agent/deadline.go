package agent

import (
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

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
	case !s.a.phases.hasten(at, from, s.a.gracePeriod()):
		http.Error(w, "the deadline is no sooner than the known one", http.StatusConflict)
	default:
		s.a.log.Info("deadline received", "deadline_in", time.Until(at).Round(time.Millisecond), "deadline_from", from)
		s.a.signal(r.Context(), drain.Sooner)
		answer(w, "ok\n")
	}
}
