package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/httpdrain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// Source keeps the gateway's routes and certificates up to date.
type Source interface {
	// Run applies changes until ctx ends, and calls synced once when the initial state is applied. It fails if it
	// cannot start.
	Run(ctx context.Context, synced func()) error

	// Pending describes what Run waits for before it calls synced; "" if nothing.
	Pending() string
}

// RunOptions of a gateway.
type RunOptions struct {
	HTTP, HTTPS, Admin string // host:port to listen on; "" for none
	Certificates       *Certificates
	Source             Source
	Termination        Termination
	TerminationLog     string // file of the container's termination message; "" for none
	MaxConnections     int    // of clients; further ones are closed at once; 0 is no limit

	// Signals delivers the signals that end it. The first begins the drain.
	Signals <-chan drain.Signal

	// Terminal, if not nil, shows a person how the drain proceeds.
	Terminal *terminal.Terminal

	// Listening, if not nil, is called once with the addresses of the listeners, nil for those that are off.
	Listening func(http, https, admin net.Addr)
}

// runner is one call of Run.
type runner struct {
	*Gateway
	o      RunOptions
	config drain.Config
	plane  *httpdrain.Plane
	admin  *admin

	serving sync.WaitGroup
	broken  error // of a listener; read after serving
	once    sync.Once
}

// Run waits for the source's initial state, serves, and drains at the first signal. It returns
//
//  1. at once, with an error, if options contradict each other or an address is unavailable;
//  2. with an error, if the source cannot start;
//  3. at once, at a signal before it serves;
//  4. after the drain, at a signal: see the Report;
//  5. with an error and the verdict Crashed, when a listener fails;
//  6. at once, when ctx ends: all connections are closed.
//
// The admin address, if set, is served throughout.
func (g *Gateway) Run(ctx context.Context, o RunOptions) (drain.Report, error) {
	r := &runner{Gateway: g, o: o}
	var err error
	if r.config, err = o.Termination.Config(); err != nil {
		return drain.Report{}, err
	}
	// Clients must not connect before it serves, but an unavailable address is an error now, not only when the
	// source is ready.
	for _, l := range []struct{ flag, address string }{{"--http", o.HTTP}, {"--https", o.HTTPS}} {
		ln, err := Listen(l.flag, l.address)
		if err != nil {
			return drain.Report{}, err
		}
		if ln != nil {
			_ = ln.Close()
		}
	}
	if r.admin, err = startAdmin(g, o.Admin, o.Source.Pending); err != nil {
		return drain.Report{}, err
	}
	defer r.admin.close()

	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	var followers sync.WaitGroup
	defer followers.Wait()
	defer stop()
	synced, broken := make(chan struct{}), make(chan error, 1)
	followers.Go(func() {
		if err := o.Source.Run(following, sync.OnceFunc(func() { close(synced) })); err != nil {
			broken <- err
		}
	})
	select {
	case <-synced:
	case err := <-broken:
		return drain.Report{}, fmt.Errorf("gateway: %w", err)
	case s := <-o.Signals:
		g.log.Info("stop signal before serving; exiting", "signal", s.String(), "pending", o.Source.Pending())
		return drain.Report{Verdict: drain.Quit, Began: time.Now()}, nil
	case <-ctx.Done():
		return drain.Report{Verdict: drain.Quit, Began: time.Now()}, nil
	}
	if err := r.serve(); err != nil {
		return drain.Report{}, err
	}
	return r.untilSignal(ctx)
}

// serve opens the listeners.
func (r *runner) serve() error {
	clear, err := Listen("--http", r.o.HTTP)
	if err != nil {
		return err
	}
	secure, err := Listen("--https", r.o.HTTPS)
	if err != nil {
		if clear != nil {
			_ = clear.Close()
		}
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           r.Gateway,
		Protocols:         protocols,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       clientIdleTimeout,
		MaxHeaderBytes:    maxHead,
		HTTP2:             &http.HTTP2Config{MaxReceiveBufferPerConnection: receiveBuffer, MaxReceiveBufferPerStream: receiveBuffer},
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
	if secure != nil {
		server.TLSConfig = r.o.Certificates.config()
		r.certificates.Store(r.o.Certificates)
	}
	clients := &quota{most: int64(r.o.MaxConnections)}
	r.plane = httpdrain.New(server, httpdrain.Options{
		Uncounted: httpdrain.IsHealthCheck, Admit: clients.admit, AnswerEarly: true,
	})
	r.metrics.watch(r.plane)
	where := []any{}
	var at [2]net.Addr
	if clear != nil {
		at[0] = clear.Addr()
		where = append(where, "http", at[0].String())
		r.serving.Go(func() { r.noteEnd(r.plane.Serve(clear)) })
	}
	if secure != nil {
		at[1] = secure.Addr()
		where = append(where, "https", at[1].String())
		r.serving.Go(func() { r.noteEnd(r.plane.ServeTLS(secure)) })
	}
	r.admin.set(ready)
	r.log.Info("gateway is serving", where...)
	if r.o.Listening != nil {
		r.o.Listening(at[0], at[1], r.admin.addr())
	}
	return nil
}

// Listen is net.Listen for TCP. If address is "" it returns nil.
func Listen(flag, address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	ln, err := listen.Open("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s %s (must be host:port): %w", flag, address, err)
	}
	return ln, nil
}

// noteEnd keeps the error of the first listener that fails.
func (r *runner) noteEnd(err error) {
	if err != nil {
		r.once.Do(func() { r.broken = fmt.Errorf("gateway: %w", err) })
	}
}

// untilSignal waits for the first signal and drains.
func (r *runner) untilSignal(ctx context.Context) (drain.Report, error) {
	var first drain.Signal
	select {
	case first = <-r.o.Signals:
	case <-r.plane.Exited():
		r.plane.Kill()
		r.serving.Wait()
		return drain.Report{Verdict: drain.Crashed, Began: time.Now()}, r.broken
	case <-ctx.Done():
		first = drain.QuitNow
	}
	if after := r.o.Termination.FailReadinessAfter; after >= 0 {
		clock := time.AfterFunc(after, func() {
			r.admin.set(notReady)
			r.log.Info("readiness fails after the configured delay", "after", after)
		})
		defer clock.Stop()
	}
	r.log.Info("stop signal received", "signal", first.String())
	r.o.Terminal.Draining(first, r.config, 0)
	report, err := drain.Termination{
		Plane:   closing{r.plane, r.admin},
		Config:  r.config,
		Trigger: first,
		Signals: r.o.Signals,
		Log:     r.log,
		Watch:   drain.Watcher{Phase: r.metrics.enter},
	}.Run(ctx)
	if err != nil {
		r.plane.Kill()
		r.serving.Wait()
		return report, err
	}
	r.serving.Wait()
	for _, c := range report.Open {
		r.metrics.cut.WithLabelValues(c.Ending).Inc()
	}
	report.Publish(r.log, r.o.TerminationLog)
	r.o.Terminal.Ended(report)
	return report, r.broken
}

// closing is the plane, and fails readiness when its listeners close.
type closing struct {
	*httpdrain.Plane
	admin *admin
}

// StopAccepting closes the listeners.
func (c closing) StopAccepting(ctx context.Context) error {
	c.admin.set(notReady)
	return c.Plane.StopAccepting(ctx)
}

// LastCall closes the listeners, too.
func (c closing) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	c.admin.set(notReady)
	return c.Plane.LastCall(ctx, window)
}
