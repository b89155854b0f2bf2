package lastcall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
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

// serveSides serves the servers that remain until the very end, without a drain: the status address, and the servers of
// WithSideServer. It logs that all are served, and what Serve listens on, once all addresses are bound.
func (s *settings) serveSides(st *status, requests *drain.Requests) (stop func(), err error) {
	all, first := s.sides, "side server"
	if s.statusAddress != "" {
		all, first = append([]*http.Server{s.statusServer(st, requests)}, all...), "status"
	}
	what := func(i int) string { return [...]string{first, "side server"}[min(i, 1)] }
	var bound []net.Listener
	for i, server := range all {
		ln, err := listen.Open("tcp", addressOf(server, hasCertificate(server.TLSConfig)))
		if err != nil {
			for _, ln := range bound {
				_ = ln.Close()
			}
			return nil, fmt.Errorf("%s address: %w", what(i), err)
		}
		bound = append(bound, ln)
	}
	for _, ln := range s.listeners {
		s.log.Info("serving", "address", ln.Addr().String(), "tls", s.useTLS)
	}
	var serving sync.WaitGroup
	for i, server := range all {
		useTLS := hasCertificate(server.TLSConfig)
		s.log.Info("serving "+what(i), "address", bound[i].Addr().String(), "tls", useTLS)
		serving.Go(func() {
			serve := server.Serve
			if useTLS {
				serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
			}
			if err := serve(bound[i]); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error(what(i)+" has failed", "error", err)
			}
		})
	}
	return func() {
		for _, server := range all {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			_ = server.Shutdown(ctx) // the answer to a hook or a scrape is on its way
			cancel()
			_ = server.Close()
		}
		serving.Wait()
	}, nil
}
