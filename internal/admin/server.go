package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/logs"
	"github.com/lastcall-dev/lastcall/internal/sideport"
)

// Options of a server.
type Options struct {
	Plane Plane

	// Quit is /quitquitquit. It is called when the answer is on its way.
	Quit func(context.Context)

	// DrainTime is Istio's drainDuration, Envoy's --drain-time-s: how long after
	// /drain_listeners?graceful the listeners are closed.
	DrainTime time.Duration

	// IdleAfter is how long after the first goodbye idle connections are ended.
	// Istio's minDrainDuration fits: until then clients may not know yet that
	// they should go elsewhere.
	IdleAfter time.Duration

	Version string         // in /server_info
	Level   *slog.LevelVar // that /logging sets; nil when it cannot be set
	Log     *slog.Logger   // nil: none

	// Listen opens the listener; nil is net.Listen.
	Listen func(network, address string) (net.Listener, error)
}

// Server answers the API on one address.
type Server struct {
	Options
	table    []command
	methods  map[string]bool
	draining *draining
	own      counts
	throttle logs.Throttle
	began    time.Time
	ctx      context.Context // ends when Close has let the answers out
	cancel   context.CancelFunc

	listener net.Listener
	http     *http.Server
	served   chan struct{}
	due      sync.RWMutex // read-locked by each answer under way
}

// answerTime is how long Close waits for answers under way.
const answerTime = 200 * time.Millisecond

// Start listens on address, host:port, and answers until Close.
func Start(address string, o Options) (*Server, error) {
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	ln, err := o.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the admin API on %s: %w", address, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		Options:  o,
		table:    commands(),
		methods:  make(map[string]bool),
		draining: newDraining(o.Plane, o.DrainTime, o.IdleAfter),
		began:    time.Now(),
		listener: ln,
		served:   make(chan struct{}),
	}
	for _, m := range methods {
		s.methods[m] = true
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = sideport.New(s, o.Log)
	s.http.ConnState = s.own.connection
	go func() {
		defer close(s.served)
		if err := s.http.Serve(sideport.Limit(ln)); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("the admin server has ended", "error", err)
		}
	}()
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Resumed is told when the data plane serves again although it was drained: what
// was asked of this API before is forgotten.
func (s *Server) Resumed() { s.draining.reset() }

// Close lets the answers out that are under way, and ends.
func (s *Server) Close() {
	answered := make(chan struct{})
	go func() { defer close(answered); s.due.Lock() }()
	select {
	case <-answered:
	case <-time.After(answerTime):
	}
	s.cancel()
	// The last chunk of an answer is written after its handler: Shutdown waits
	// for it, and would wait for connections on which nothing was asked.
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	<-s.served
	<-answered
	s.due.Unlock()
	s.draining.close()
}
