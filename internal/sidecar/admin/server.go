package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Options of a server.
type Options struct {
	Plane     Plane
	Quit      func()        // /quitquitquit, called after the response was sent
	DrainTime time.Duration // from /drain_listeners?graceful to the end of listening: Envoy's --drain-time-s

	// IdleAfter is how long after the start of a drain idle connections are closed. Istio's minDrainDuration fits:
	// until then clients may not yet know of other endpoints.
	IdleAfter time.Duration
	IdleGrace time.Duration // for which a connection is idle before it is closed

	Log *slog.Logger // nil: none
}

// Server serves the API on one address.
type Server struct {
	Options
	draining *draining
	throttle logs.Throttle

	address net.Addr
	http    *statusserver.Server
}

// Start listens on address, host:port, and serves until Close.
func Start(address string, o Options) (*Server, error) {
	ln, err := listen.Open("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the admin API on %s: %w", address, err)
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{
		Options:  o,
		draining: &draining{Options: o},
		address:  ln.Addr(),
	}
	s.http = statusserver.Serve(statusserver.New(s, o.Log), ln, o.Log)
	return s, nil
}

// Addr is where the server listens.
func (s *Server) Addr() net.Addr { return s.address }

// Resumed is called when the data plane serves again after a cancelled drain: requests to this API before that are
// undone.
func (s *Server) Resumed() { s.draining.reset() }

// Close waits for the requests in progress, and stops.
func (s *Server) Close() {
	s.http.End()
	s.draining.reset()
	s.draining.due.Wait()
}

// Plane is the pipe that the API shows and controls. Its methods may be called concurrently and repeatedly.
type Plane interface {
	Listeners() []pipe.Listener // the current inbound listeners
	Drain(context.Context) error
	CloseIdle(context.Context, time.Duration) error
	StopAccepting(context.Context) error
}

// statAddress is the address in the names of statistics: 0.0.0.0_8080, [__]_8080. Envoy replaces colons, which separate
// a name from its value. One socket for IPv4 and IPv6 has the name that Istio gives it, by which tools find it.
func statAddress(l *pipe.Listener) string {
	at := tcp.AddrPort(l.Addr)
	if at.Addr() == netip.IPv6Unspecified() {
		at = netip.AddrPortFrom(netip.IPv4Unspecified(), at.Port())
	}
	return strings.ReplaceAll(at.String(), ":", "_")
}

// statPrefix is the middle of http.….downstream_cx_active. The semicolon is Istio's: it ends a prefix that contains
// dots.
func statPrefix(l *pipe.Listener) string { return cmp.Or(l.Name, "inbound_"+statAddress(l)+";") }
