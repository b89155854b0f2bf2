package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server listens for reviews, and apart from them, in clear, for probes and scrapes.
type Server struct {
	Handler *Handler

	// Certificate is asked at each handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// MinimumDrain is how long reviews are still taken after ctx has ended.
	MinimumDrain time.Duration

	// LastCall is when, from then on, what is left is cut; at least MinimumDrain.
	LastCall time.Duration

	Log *slog.Logger

	draining atomic.Bool
}

// Seen tells the metrics of a look at the certificate.
func (s *Server) Seen(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m := s.Handler.metrics
	m.rotation.WithLabelValues(result).Inc()
	if c, err := s.Certificate(nil); err == nil && c.Leaf != nil {
		m.expiry.Set(float64(c.Leaf.NotAfter.Unix()))
	}
}

// Serve serves both until ctx ends, and then drains. It returns nil after a drain.
func (s *Server) Serve(ctx context.Context, reviews, plain net.Listener) error {
	quiet := slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug) // handshakes that fail are probes and scans
	secure := &http.Server{
		Handler:           s.goodbye(s.Handler),
		TLSConfig:         &tls.Config{GetCertificate: s.Certificate, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          quiet,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", s.ready)
	mux.Handle("/metrics", s.Handler.metrics.handler())
	open := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quiet}

	failed := make(chan error, 2)
	var serving sync.WaitGroup
	serving.Go(func() { failed <- secure.ServeTLS(reviews, "", "") })
	serving.Go(func() { failed <- open.Serve(plain) })
	defer serving.Wait()
	defer func() { _ = open.Close() }()
	defer func() { _ = secure.Close() }()
	s.Log.Info("serving", "reviews", reviews.Addr().String(), "plain", plain.Addr().String())
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	return s.drain(secure, failed)
}

// drain goes on for the minimum, ready all the while: the endpoints have taken us out
// already, and callers that do not know yet must find somebody.
func (s *Server) drain(secure *http.Server, failed <-chan error) error {
	s.draining.Store(true)
	began := time.Now()
	s.Log.Info("draining", "minimum", s.MinimumDrain)
	minimum := time.NewTimer(s.MinimumDrain)
	defer minimum.Stop()
	select {
	case err := <-failed:
		return fmt.Errorf("serve while draining: %w", err)
	case <-minimum.C:
	}
	ctx, cancel := context.WithDeadline(context.Background(), began.Add(max(s.LastCall, s.MinimumDrain+time.Second)))
	defer cancel()
	err := secure.Shutdown(ctx)
	s.Log.Info("drained", "after", time.Since(began).Round(time.Millisecond), "cut", errors.Is(err, context.DeadlineExceeded))
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

// goodbye asks callers to close their connection while draining; over HTTP/2 the server
// makes a GOAWAY of it.
func (s *Server) goodbye(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if _, err := s.Certificate(nil); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}
