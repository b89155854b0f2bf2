package lastcall

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/listen"
)

// Report describes how a termination went. Its Verdict is drain.Clean when every conversation ended by itself.
type Report = drain.Report

// Draining returns a channel that is closed when the drain begins. ctx is the context of an HTTP request, hijacked or
// not, or of a gRPC call; for any other it returns nil, which is never ready. A handler that streams events, holds a
// WebSocket or waits for news selects on it, and ends where its client loses nothing:
//
//	select {
//	case event := <-events:
//		…
//	case <-lastcall.Draining(r.Context()):
//		return // the client reconnects, to another pod
//	case <-r.Context().Done():
//		return
//	}
func Draining(ctx context.Context) <-chan struct{} { return drain.Begun(ctx) }

// settings are the values of the options and the environment.
type settings struct {
	config        drain.Config
	log           *slog.Logger
	listeners     []net.Listener
	useTLS        bool
	certFile      string
	keyFile       string
	others        []drain.DataPlane
	sides         []*http.Server
	background    []func(context.Context) error
	uncounted     func(*http.Request) bool
	answer        http.HandlerFunc
	statusAddress string
	hookToken     string
	message       string
	drainedByHook bool
	signals       <-chan drain.Signal
}

func newSettings(opts []Option) (settings, error) {
	s, err := fromEnvironment(os.Getenv)
	if err != nil {
		return s, err
	}
	for _, o := range opts {
		if o == nil {
			return s, errors.New("an option is nil")
		}
		o(&s)
	}
	if slices.Contains(s.listeners, nil) {
		return s, errors.New("a listener of WithListener is nil")
	}
	if slices.Contains(s.sides, nil) {
		return s, errors.New("a server of WithSideServer is nil")
	}
	if slices.ContainsFunc(s.background, func(f func(context.Context) error) bool { return f == nil }) {
		return s, errors.New("a function of WithBackground is nil")
	}
	for _, p := range s.others {
		if err := check(p); err != nil {
			return s, fmt.Errorf("With: %w", err)
		}
	}
	if d := s.config.GracePeriod; d < time.Second {
		return s, fmt.Errorf("grace period is %v: must be 1s or more, such as 30*time.Second", d)
	}
	s.log = cmp.Or(s.log, slog.Default())
	misspelt(s.log, os.Environ())
	return s, s.config.Validate()
}

// Serve serves HTTP until SIGTERM, SIGINT or the end of ctx, drains the server, and returns when every conversation has
// ended, or when the last call has been made. The report has been logged then. main should return next.
//
// It listens on the server's Addr (or WithListener), with TLS if the server's TLSConfig has a
// certificate (or WithTLSFiles), and takes the server over: its own Serve must not be called. Functions of
// RegisterOnShutdown are called when no new connections are expected. If the program calls the server's own
// Shutdown, it waits as net/http's does, and Serve ends as at Ctrl-C.
//
// The error is not nil when the server could not be started, or failed before its end (drain.Crashed). A request that
// was cut is no error: see Report.Verdict.
func Serve(ctx context.Context, server *http.Server, opts ...Option) (Report, error) {
	return configured(ctx, opts, func(s *settings) (Report, error) {
		if server == nil {
			return Report{}, errors.New("server is nil")
		}
		return s.serve(ctx, server)
	})
}

// Run is Serve for any data plane: a Worker, a gRPC server, or an HTTP server that the caller serves
// on (httpdrain.New). Several are drained together: see With. When the first of them ends by itself,
// the others are drained.
func Run(ctx context.Context, plane drain.DataPlane, opts ...Option) (Report, error) {
	return configured(ctx, opts, func(s *settings) (Report, error) {
		if err := check(plane); err != nil {
			return Report{}, err
		}
		s.listeners = nil // Serve's
		requests, stop := s.receiveSignals(ctx)
		defer stop()
		return s.run(ctx, append([]drain.DataPlane{plane}, s.others...), requests)
	})
}

// check reports why a data plane cannot be run.
func check(p drain.DataPlane) error {
	if p == nil {
		return errors.New("data plane is nil")
	}
	select {
	case <-p.Exited():
		return errors.New("the data plane has already ended; make a new one")
	default:
		return nil
	}
}

// configured calls f with the settings of the environment and the options.
func configured(ctx context.Context, opts []Option, f func(*settings) (Report, error)) (report Report, err error) {
	s, err := newSettings(opts)
	if ctx == nil {
		err = errors.New("the context is nil: context.Background() never ends")
	}
	if err == nil {
		report, err = f(&s)
	}
	if err == nil && report.Verdict == drain.Crashed {
		err = errors.New("a data plane ended by itself: its Serve has returned the reason")
	}
	if err != nil {
		err = fmt.Errorf("lastcall: %w", err)
	}
	return report, err
}

func (s *settings) serve(ctx context.Context, server *http.Server) (Report, error) {
	requests, stop := s.receiveSignals(ctx) // first, since SIGTERM would end the program without a drain
	defer stop()
	if err := s.prepareTLS(server); err != nil {
		return Report{}, err
	}
	if err := s.listen(addressOf(server, s.useTLS)); err != nil {
		return Report{}, err
	}
	uncounted := func(r *http.Request) bool {
		return httpdrain.IsHealthCheck(r) || s.uncounted != nil && s.uncounted(r)
	}
	begun := make(chan struct{}, len(s.listeners)) // the plane has a listener, or its Serve has returned
	begins := func() {
		select {
		case begun <- struct{}{}:
		default:
		}
	}
	base := server.BaseContext
	server.BaseContext = func(ln net.Listener) context.Context {
		begins()
		if base != nil {
			return base(ln)
		}
		return context.Background()
	}
	plane := httpdrain.New(server, httpdrain.Options{Answer: s.answer, Uncounted: uncounted,
		OnShutdown: func() { requests.Send(drain.ShutdownCalled) }})
	serve := plane.Serve
	if s.useTLS {
		serve = plane.ServeTLS
	}
	errs := make([]error, len(s.listeners))
	for _, ln := range s.listeners {
		if err := checkOpen(ln); err != nil {
			plane.Kill()
			return Report{}, fmt.Errorf("serve on %s: %w", ln.Addr(), err)
		}
	}
	var serving sync.WaitGroup
	for i, ln := range s.listeners {
		serving.Go(func() { errs[i] = serve(ln); begins() })
	}
	for range s.listeners { // a drain without them would reset the clients in their queues
		<-begun
	}
	report, err := s.run(ctx, append([]drain.DataPlane{plane}, s.others...), requests)
	plane.Kill() // does nothing after a drain
	serving.Wait()
	return report, errors.Join(append(errs, err)...)
}

// checkOpen returns an error for a listener that has been closed, if it shows that.
func checkOpen(ln net.Listener) error {
	has, ok := ln.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(uintptr) {})
}

// prepareTLS sets whether the server uses TLS.
func (s *settings) prepareTLS(server *http.Server) error {
	if s.certFile != "" || s.keyFile != "" {
		cert, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return fmt.Errorf("load the certificate: %w", err)
		}
		if server.TLSConfig == nil {
			server.TLSConfig = &tls.Config{}
		} else {
			server.TLSConfig = server.TLSConfig.Clone()
		}
		server.TLSConfig.Certificates = append(server.TLSConfig.Certificates, cert)
	}
	s.useTLS = hasCertificate(server.TLSConfig)
	return nil
}

func hasCertificate(c *tls.Config) bool {
	return c != nil && (len(c.Certificates) > 0 || c.GetCertificate != nil || c.GetConfigForClient != nil)
}

// addressOf is where net/http's ListenAndServe would listen.
func addressOf(server *http.Server, useTLS bool) string {
	return cmp.Or(server.Addr, map[bool]string{false: ":http", true: ":https"}[useTLS])
}

// listen listens on the server's address, unless the caller has brought listeners.
func (s *settings) listen(address string) error {
	if len(s.listeners) > 0 {
		return nil
	}
	ln, err := listen.Open("tcp", address)
	s.listeners = append(s.listeners, ln)
	return err
}
