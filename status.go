package lastcall

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/phase"
)

// status is the state behind /ready and /prestop.
type status struct {
	phase.State
	unready bool
	phase   drain.Phase
}

func (s *status) setReady(ready bool) { s.Set(func() { s.unready = !ready }) }
func (s *status) enter(p drain.Phase) { s.Set(func() { s.phase = p }) }

// statusServer serves the status address.
func (s *settings) statusServer(st *status, requests *drain.Requests) *http.Server {
	return &http.Server{
		Addr:              s.statusAddress,
		Handler:           s.statusHandler(st, requests),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, 0),
	}
}

func (s *settings) statusHandler(st *status, requests *drain.Requests) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		var now drain.Phase
		var unready bool
		st.Get(func() { now, unready = st.phase, st.unready })
		if unready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, now.String()+"\n")
	})
	path := "/prestop"
	if s.hookToken != "" {
		path += "/" + s.hookToken
	}
	mux.HandleFunc("GET "+path, func(_ http.ResponseWriter, r *http.Request) {
		requests.Send(drain.Hook)
		_ = st.Reached(r.Context(), &st.phase, drain.Drained)
	})
	return mux
}
