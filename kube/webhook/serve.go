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
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/certificate"
	"github.com/lastcall-dev/lastcall/internal/terminal"
)

// Server listens for reviews, and apart from them, in clear, for probes and scrapes.
type Server struct {
	Handler *Handler

	// Certificate is asked at each handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

	// Delay is how long it serves on after Serve's context has ended, before it drains. A drain sends the API server
	// elsewhere; one that resolves the service to ready endpoints finds none when all replicas go at
	// once, until others are ready. On the connections that it has it can go on meanwhile.
	Delay time.Duration

	// Drain is how it ends; drain.DefaultConfig is as the agent does. Its grace period begins after Delay.
	Drain drain.Config

	// First is the signal that ended Serve's context; nil is SIGTERM.
	First func() drain.Signal

	// Signals bring what comes after the end of Serve's context: a second SIGTERM, which
	// makes the last call at once. Nil is none.
	Signals <-chan drain.Signal

	// TerminationLog is the file of the container's termination message; empty for none.
	TerminationLog string

	Log *slog.Logger

	// Terminal, if there is one, is where a person watches.
	Terminal *terminal.Terminal
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
	secure := httpdrain.New(&http.Server{
		Handler:           s.Handler,
		TLSConfig:         &tls.Config{GetCertificate: s.Certificate, MinVersion: tls.VersionTLS12, CipherSuites: certificate.Suites()},
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       longestTime,
		WriteTimeout:      2 * longestTime, // it counts from the request's head
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaders,
		// A stream whose handler waits for its turn must not keep the others of its connection waiting: a
		// connection's window is that of many streams.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 512 << 10},
		ErrorLog: quiet,
	}, httpdrain.Options{Admit: bound(maxConnections)})
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("/readyz", s.ready)
	mux.Handle("/metrics", s.Handler.metrics.handler())
	open := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: longestTime, WriteTimeout: 2 * longestTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeaders, ErrorLog: quiet,
	}

	var reviewsErr, plainErr, drainErr error
	plainFailed := make(chan struct{})
	var serving sync.WaitGroup
	serving.Go(func() { reviewsErr = secure.ServeTLS(reviews) })
	serving.Go(func() {
		defer close(plainFailed)
		if err := open.Serve(&scraped{plain, bound(maxScrapes)}); !errors.Is(err, http.ErrServerClosed) {
			plainErr = fmt.Errorf("serve on %s: %w", plain.Addr(), err)
		}
	})
	s.Log.Info("serving", "reviews", reviews.Addr().String(), "plain", plain.Addr().String())
	select {
	case <-secure.Exited():
	case <-plainFailed:
		secure.Kill()
	case <-ctx.Done():
		// Ready all the while: the endpoints have taken us out already, and callers that do not
		// know yet must find somebody.
		first := drain.Terminate
		if s.First != nil {
			first = s.First()
		}
		s.Terminal.Draining(first, s.Drain, s.Delay)
		if hurry, ok := s.delay(secure.Exited(), plainFailed); ok {
			if hurry {
				first = drain.Hurry
			}
			report, err := drain.Termination{Plane: secure, Config: s.Drain, Trigger: first, Signals: s.Signals, Log: s.Log}.Run(context.WithoutCancel(ctx))
			if err == nil {
				report.Publish(s.Log, s.TerminationLog)
				s.Terminal.Ended(report)
			}
			drainErr = err
		}
	}
	secure.Kill() // nothing, after a drain
	_ = open.Close()
	serving.Wait()
	return errors.Join(reviewsErr, plainErr, drainErr)
}

// delay waits before the drain. hurry reports that a second signal has arrived, ok that there is something to drain.
func (s *Server) delay(exited, plainFailed <-chan struct{}) (hurry, ok bool) {
	if s.Delay > 0 {
		s.Log.Info("serving on until other replicas are ready", "drain_in", s.Delay)
	}
	over := time.NewTimer(s.Delay)
	defer over.Stop()
	select {
	case <-over.C:
		return false, true
	case <-s.Signals:
		return true, true
	case <-exited:
	case <-plainFailed:
	}
	return false, false
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if _, err := s.Certificate(nil); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}
