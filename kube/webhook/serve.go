package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/certificate"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
)

// Server serves reviews, and on another port without TLS probes and scrapes.
type Server struct {
	Handler *Handler

	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error) // called for each handshake

	// Delay is the time between the stop signal and the drain. A drain makes the API server connect again; an
	// API server that resolves the service to ready endpoints finds none if all replicas stop at once, until others are
	// ready. Meanwhile it can use its open connections.
	Delay time.Duration

	// Drain configures the drain; drain.DefaultConfig is the agent's. Its grace period begins after Delay.
	Drain drain.Config

	// Requests gets the stop signals: the first one begins the drain, as the end of Serve's context does.
	Requests *drain.Requests

	TerminationLog string // the file of the container's termination message; empty for none

	Log *slog.Logger
}

// Seen records the result of a look at the certificate in the metrics.
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

// Serve serves both until a signal arrives or ctx ends, and then drains. It returns nil after a drain.
func (s *Server) Serve(ctx context.Context, reviews, plain net.Listener) error {
	quiet := slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug) // failed handshakes are probes and scans
	secure := httpdrain.New(&http.Server{
		Handler: s.Handler,
		TLSConfig: &tls.Config{
			GetCertificate: s.Certificate, MinVersion: tls.VersionTLS12, CipherSuites: certificate.Suites(),
		},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       longestTime,
		WriteTimeout:      2 * longestTime, // counted from the request's head
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaders,
		// A stream whose handler waits must not block the other streams: the connection's window is large enough for many of
		// them.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 100, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 512 << 10,
		},
		ErrorLog: quiet,
	}, httpdrain.Options{Admit: statusserver.Admit(maxConnections)})
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", s.ready)
	mux.Handle("/metrics", statusserver.Scrapes(s.Handler.metrics.handler()))
	open := statusserver.New(mux, s.Log)

	var reviewsErr, plainErr, drainErr error
	plainFailed := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() { reviewsErr = secure.ServeTLS(reviews) })
	serving.Go(func() {
		defer close(plainFailed)
		if err := open.Serve(statusserver.Limit(plain)); !errors.Is(err, http.ErrServerClosed) {
			plainErr = fmt.Errorf("serve on %s: %w", plain.Addr(), err)
		}
	})
	s.Log.Info("serving", "reviews", reviews.Addr().String(), "plain", plain.Addr().String())
	requests := cmp.Or(s.Requests, new(drain.Requests))
	defer context.AfterFunc(ctx, func() { requests.Send(drain.ContextEnded) })()
	now, changed := requests.Look()
	if !now.Begun {
		select {
		case <-secure.Exited():
		case <-plainFailed:
			secure.Kill()
		case <-changed:
		}
		now, _ = requests.Look()
	}
	if now.Begun {
		drainErr = s.end(ctx, secure, plainFailed, requests)
	}
	secure.Kill() // no effect after a drain
	_ = open.Close()
	serving.Wait()
	return errors.Join(reviewsErr, plainErr, drainErr)
}

// end drains, after the delay, which a second signal ends. The server stays ready: the endpoints no longer list this
// pod, and callers with old endpoints still need an answer.
func (s *Server) end(ctx context.Context, secure *httpdrain.Plane, plainFailed <-chan struct{},
	requests *drain.Requests) error {
	if s.Delay > 0 {
		s.Log.Info("delaying the drain until other replicas are ready", "drain_in", s.Delay)
	}
	over := time.NewTimer(s.Delay)
	defer over.Stop()
	now, changed := requests.Look()
	for isOver := false; !isOver && now.Again.IsZero() && now.Noticed.IsZero(); now, changed = requests.Look() {
		select {
		case <-over.C:
			isOver = true
		case <-changed:
		case <-secure.Exited():
			return nil
		case <-plainFailed:
			return nil
		}
	}
	t := drain.Termination{Plane: secure, Config: s.Drain, Trigger: now.First, Requests: requests, Log: s.Log}
	report, err := t.Run(context.WithoutCancel(ctx))
	if err == nil {
		report.Publish(s.Log, s.TerminationLog)
	}
	return err
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if _, err := s.Certificate(nil); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}
