package httpbin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
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

	// OnTerm is what happens when Run's context ends. Empty means Exit.
	OnTerm OnTerm

	// Log gets a line at the start and at the end. Nil: none.
	Log *slog.Logger
}

// Run serves until ctx ends, and then stops by OnTerm. It returns nil after that: with Exit at once, and closes all
// connections; otherwise when the last connection is closed. It has no deadline: the platform sends SIGKILL.
func Run(ctx context.Context, o Options) error {
	onTerm := cmp.Or(o.OnTerm, Exit)
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ln := o.Listener
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", o.Listen); err != nil {
			return fmt.Errorf("listen on %q (must be host:port): %w", o.Listen, err)
		}
	}

	conns := &connections{gone: make(chan struct{})}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler:           NewHandler(o.MaxDelay),
		Protocols:         protocols,
		ReadHeaderTimeout: headTimeout,
		ConnState:         conns.note,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
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
		now, cancel := context.WithCancel(ctx)
		cancel()
		if err = srv.Shutdown(now); errors.Is(err, context.Canceled) {
			err = nil
		}
	}
	if ended := <-served; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	if onTerm == CloseListener {
		conns.wait()
		// It only frees memory: the listener is already closed.
		_ = srv.Close()
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("stop serving on %s: %w", ln.Addr(), err)
	}
	return nil
}

// connections counts open connections, and signals the end of the last one.
type connections struct {
	mu      sync.Mutex // guards open and waiting
	open    int
	waiting bool
	gone    chan struct{} // closed once, when waiting and no connection is open
}

func (c *connections) note(_ net.Conn, s http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s {
	case http.StateNew:
		c.open++
	case http.StateClosed, http.StateHijacked:
		c.open--
		if c.waiting && c.open == 0 {
			close(c.gone)
		}
	}
}

// wait is called once, after the listener is closed: no more connections can arrive.
func (c *connections) wait() {
	c.mu.Lock()
	none := c.open == 0
	c.waiting = !none
	c.mu.Unlock()
	if !none {
		<-c.gone
	}
}
