package lastcall

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// status is what /ready and /prestop answer by.
type status struct {
	mu      sync.Mutex // guards what follows
	ready   bool
	phase   drain.Phase
	changed chan struct{} // closed and replaced when phase changes
}

func newStatus() *status { return &status{ready: true, changed: make(chan struct{})} }

func (s *status) setReady(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = ready
}

func (s *status) enter(p drain.Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phase = p
	close(s.changed)
	s.changed = make(chan struct{})
}

// statusServer serves the status address.
func (s *settings) statusServer(st *status, signals *signals) *http.Server {
	return &http.Server{
		Addr:              s.statusAddress,
		Handler:           s.statusHandler(st, signals),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, 0),
	}
}

func (s *settings) statusHandler(st *status, signals *signals) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		st.mu.Lock()
		ready, phase := st.ready, st.phase
		st.mu.Unlock()
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, phase.String()+"\n")
	})
	path := "/prestop"
	if s.hookToken != "" {
		path += "/" + s.hookToken
	}
	mux.HandleFunc("GET "+path, func(_ http.ResponseWriter, r *http.Request) {
		signals.send(drain.Hook)
		st.awaitDrained(r.Context())
	})
	return mux
}

// awaitDrained waits until a drain has ended, or is cancelled, or until ctx ends.
func (s *status) awaitDrained(ctx context.Context) {
	for begun := false; ; {
		s.mu.Lock()
		phase, changed := s.phase, s.changed
		s.mu.Unlock()
		switch phase {
		case drain.Drained, drain.Done:
			return
		case drain.Serving:
			if begun {
				return
			}
		default:
			begun = true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
