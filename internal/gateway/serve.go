package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// Serve serves on ln, which it takes over, until ctx ends; then it stops
// accepting, lets requests in flight end within the shutdown timeout, and breaks
// off what is left. When it returns, every request has ended and has its
// line in the access log. It returns nil for an end by ctx, be it with requests broken
// off (which the log tells). It is called once.
//
// How it can end: ctx ends (nil); ln breaks (an error); the endpoints file cannot be
// watched (an error, before anything is accepted).
func (g *Gateway) Serve(ctx context.Context, ln net.Listener) error {
	base, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	watching, stopWatching := context.WithCancel(base)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stopWatching()
	if g.options.EndpointsFile != "" {
		w, err := watchEndpoints(g.options.EndpointsFile, g.endpoints, g.log)
		if err != nil {
			_ = ln.Close()
			return fmt.Errorf("gateway: %w", err)
		}
		watchers.Go(func() { w.run(watching) })
	}
	defer g.endpoints.close()

	srv := &http.Server{
		Handler:           g,
		BaseContext:       func(net.Listener) context.Context { return base },
		ReadHeaderTimeout: headTimeout,
		ErrorLog:          slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		Protocols:         new(http.Protocols),
	}
	srv.Protocols.SetHTTP1(true)
	serve := srv.Serve
	if len(g.options.Certificates) > 0 {
		srv.Protocols.SetHTTP2(true)
		srv.TLSConfig = &tls.Config{Certificates: g.options.Certificates, MinVersion: tls.VersionTLS12}
		serve = func(l net.Listener) error { return srv.ServeTLS(l, "", "") }
	}
	served := make(chan error, 1)
	go func() { served <- serve(ln) }()
	g.setReady(true)
	g.log.Info("gateway is serving", "address", ln.Addr().String(), "tls", srv.TLSConfig != nil, "endpoints", g.Endpoints())

	var failed error
	select {
	case failed = <-served:
		served <- failed
	case <-ctx.Done():
	}
	g.setReady(false)
	g.log.Info("gateway is stopping", "timeout_ms", g.options.ShutdownTimeout.Milliseconds())
	bound, cancel := context.WithTimeout(base, g.options.ShutdownTimeout)
	defer cancel()
	// Upgraded connections are not Shutdown's business, so they are waited for here.
	err := errors.Join(srv.Shutdown(bound), g.wait(bound))
	if err != nil {
		g.mu.Lock()
		left := g.inFlight
		g.mu.Unlock()
		g.log.Warn("gateway breaks off what is in flight", "requests", left)
		cut(errShutdown) // before the connections, so that the reason is known
		_ = srv.Close()
	}
	<-served
	_ = g.wait(context.WithoutCancel(base)) // every one ends, its context being over
	g.log.Info("gateway has stopped")
	if failed != nil {
		return fmt.Errorf("gateway: serve on %s: %w", ln.Addr(), failed)
	}
	return nil
}

func (g *Gateway) setReady(ready bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ready = ready
}

// AdminHandler answers GET /ready as Envoy's admin does: 200 LIVE while Serve
// accepts, else 503 DRAINING.
func (g *Gateway) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		g.mu.Lock()
		ready := g.ready
		g.mu.Unlock()
		w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "DRAINING\n")
			return
		}
		_, _ = io.WriteString(w, "LIVE\n")
	})
	return mux
}
