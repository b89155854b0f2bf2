// Package httpbin is an app for rehearsals: go-httpbin's paths, which answer slowly, stream and fail, in a server that
// stops in one of three ways (see OnTerm). It speaks HTTP/1.1, and HTTP/2 without TLS with prior knowledge.
package httpbin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
)

// headTimeout limits how long a connection may take to send a request's head, as nginx's client_header_timeout does,
// and so how long CloseListener waits for a connection without a request.
const headTimeout = 60 * time.Second

// Options of an app.
type Options struct {
	// Listen is the TCP address; unused if Listener is set.
	Listen string

	// Listener, if set, is served and closed by Run.
	Listener net.Listener

	// MaxDelay limits /delay. Zero means DefaultMaxDelay.
	MaxDelay time.Duration

	// OnTerm is the behaviour when Run's context ends. Empty means Exit.
	OnTerm OnTerm

	// Log gets a line at the start and at the end. Nil: none.
	Log *slog.Logger
}

// Run serves until ctx ends, and then stops by OnTerm. It returns nil after that: with Exit at once, and closes all
// connections; otherwise when the last connection is closed. It has no deadline: the platform sends SIGKILL.
func Run(ctx context.Context, o Options) error {
	onTerm := cmp.Or(o.OnTerm, Exit)
	log := cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	ln := o.Listener
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", o.Listen); err != nil {
			return fmt.Errorf("listen on %q (must be host:port): %w", o.Listen, err)
		}
	}

	var open sync.WaitGroup // connections
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler:           NewHandler(cmp.Or(o.MaxDelay, DefaultMaxDelay)),
		Protocols:         protocols,
		ReadHeaderTimeout: headTimeout,
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed, http.StateHijacked:
				open.Done()
			}
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	// Shutdown makes Serve return before the last connection is closed, so its error only counts before Shutdown.
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	log.Info("httpbin is serving", "address", ln.Addr().String(), "on_term", string(onTerm))

	select {
	case err := <-served:
		_ = srv.Close()
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	log.Info("httpbin is stopping", "on_term", string(onTerm))

	var err error
	switch onTerm {
	case Exit:
		err = srv.Close()
	case Drain:
		err = srv.Shutdown(context.WithoutCancel(ctx))
	case CloseListener:
		// With an ended context Shutdown closes the listener and idle connections, and sends `Connection: close` on the
		// others, but does not wait for them.
		if err = srv.Shutdown(ctx); errors.Is(err, ctx.Err()) {
			err = nil
		}
	}
	if ended := <-served; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	if onTerm == CloseListener {
		open.Wait() // the listener is closed: no more can arrive
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

// NewHandler returns the app's paths. maxDelay is the longest time that an answer may take.
func NewHandler(maxDelay time.Duration) http.Handler {
	return httpbin.New(httpbin.WithMaxDuration(maxDelay), httpbin.WithMaxBodySize(maxBody))
}

// DefaultMaxDelay is httpbin's own limit of /delay.
const DefaultMaxDelay = 10 * time.Second

// maxBody is the limit of bodies, bytes; httpbin's own is too small to fill a socket's buffers.
const maxBody = 100 << 20

// OnTerm is the app's behaviour at SIGTERM.
type OnTerm string

const (
	// Exit is the behaviour of programs without a signal handler: the signal ends the process, and the requests in
	// flight. PID 1 of a namespace exits with status 2: the kernel drops the signal, and Go's runtime exits.
	Exit OnTerm = "exit"

	// CloseListener is the behaviour of nginx (a worker at SIGQUIT, `nginx -s quit`): it closes the listening socket
	// and idle connections at once, finishes the requests in flight with `Connection: close`, and exits with status 0
	// when the last connection is closed.
	CloseListener OnTerm = "close-listener"

	// Drain is http.Server.Shutdown. It closes the listening socket as well and finishes the requests in flight, but
	// polls for the last connection (up to half a second late), and waits up to five seconds for connections without a
	// request.
	Drain OnTerm = "drain"
)

// NotifyContext returns a context for Run that ends at SIGTERM or SIGINT. With Exit it installs no handler, so that the
// signal ends the process.
func NotifyContext(parent context.Context, onTerm OnTerm) (context.Context, context.CancelFunc) {
	if onTerm == Exit {
		return context.WithCancel(parent)
	}
	return signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
}
