package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Outbound connections outlive inbound ones: the app's last queries, its commits of offsets, its own shutdown. Once the
// inbound side is drained, outbound connections continue until the app has exited.

func (a *agent) startOutbound() (err error) {
	if a.Outbound == "" {
		return nil
	}
	a.outbound, err = startOutboundProxy(a.Outbound, a.isOwn, a.log)
	if err == nil {
		a.status.metrics.outbound.Store(a.outbound)
		a.log.Info("serving outbound", "listen", a.outbound.ln.Addr().String())
	}
	return err
}

// isOwn reports whether a destination is a port that receives captured connections.
func (a *agent) isOwn(to netip.AddrPort) bool {
	if to.Port() == netip.MustParseAddrPort(a.outbound.ln.Addr().String()).Port() {
		return true
	}
	p, ok := a.plane.(*pipe.Pipe)
	return ok && slices.ContainsFunc(p.Listeners(), func(l pipe.Listener) bool {
		return l.App == "" && netip.MustParseAddrPort(l.Addr.String()).Port() == to.Port()
	})
}

// endOutbound waits until the app has exited, until the deadline by at most, and closes the outbound side. The app is
// known to have exited
//
//  1. when it was our child;
//  2. when SIGTERM arrived only after a hook's drain was complete: the kubelet ends a native sidecar after the app
//     (KEP-753);
//  3. by its processes, where the pod shares them;
//  4. by the process that its exec hook has left in each container (presences).
//
// Otherwise it may run until the deadline. In Istio's modes the proxy ends as a whole, even if the app still needs it.
func (a *agent) endOutbound(ctx context.Context, by time.Time) {
	defer a.outbound.close()
	defer a.presences.end()
	if a.Settings.Mode() != drain.ExitOnZero || !a.awaitAppEnd(ctx, by) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(time.Until(by), lastBytes))
	defer cancel()
	a.outbound.finish(ctx)
}

// lastBytes is how long bytes that an app wrote just before its exit may take, and how long the other side has to close
// its connections.
const lastBytes = time.Second

// awaitAppEnd waits for the app's exit until the deadline by. It returns false when the exit was not seen.
func (a *agent) awaitAppEnd(ctx context.Context, by time.Time) bool {
	if a.app != nil || a.phases.now().hooked {
		return true
	}
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	a.log.Info("inbound drained; outbound connections stay open until the app exits", "open", a.outbound.open.Load())
	began := time.Now()
	var err error
	if process.AreShared() {
		err = awaitAppGone(ctx, 0, true)
	} else {
		err = a.presences.awaitGone(ctx, int(max(1, a.Pod.AppContainers)))
	}
	if err != nil {
		a.log.Warn("app still running at the deadline; closing its outbound connections", "open", a.outbound.open.Load(),
			"error", err,
			"hint", "a native sidecar ends after the app; a classic one detects its exit with "+
				"shareProcessNamespace, or with lastcall wait as the preStop hook of every app container")
		return false
	}
	a.log.Info("app exited", "after", time.Since(began).Round(time.Millisecond))
	return true
}

// outboundProxy forwards bytes and takes no part in a drain: the app can open new connections until it exits.
type outboundProxy struct {
	ln       *net.TCPListener
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	isOwn    func(netip.AddrPort) bool
	throttle logs.Throttle

	open    atomic.Int64
	total   atomic.Uint64
	failed  atomic.Uint64 // connections whose destination could not be reached
	changed atomic.Int64  // when open changed last, Unix ns

	done sync.WaitGroup
}

// startOutboundProxy listens at address for captured connections. isOwn reports whether a destination is a listener of
// this process: a connection to it would loop.
func startOutboundProxy(address string, isOwn func(netip.AddrPort) bool, log *slog.Logger) (*outboundProxy, error) {
	lc := net.ListenConfig{KeepAliveConfig: tcp.KeepAlive}
	lc.SetMultipathTCP(false) // it has no original destination
	ln, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for outbound connections on %s: %w", address, err)
	}
	p := &outboundProxy{ln: ln.(*net.TCPListener), log: log, isOwn: isOwn}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.changed.Store(time.Now().UnixNano())
	p.done.Go(p.accept)
	return p, nil
}

// finish waits until all connections have ended, or ctx ends. When the app has exited, its last bytes may still be in
// flight: its ends of the connections are closed, so each ends as soon as the other side closes.
func (p *outboundProxy) finish(ctx context.Context) {
	began := time.Now()
	_ = poll.Until(ctx, time.Millisecond, func() bool {
		// A connection may wait to be accepted: for a moment none is open.
		since := time.Since(time.Unix(0, p.changed.Load()))
		return p.open.Load() == 0 && min(since, time.Since(began)) >= acceptTime
	})
}

// acceptTime is how long an established connection may take to be accepted.
const acceptTime = 10 * time.Millisecond

// close ends everything at once. It is called when the app has exited.
func (p *outboundProxy) close() {
	p.cancel()
	_ = p.ln.Close()
	p.done.Wait()
}

func (p *outboundProxy) accept() {
	pause := time.Millisecond
	for {
		c, err := p.ln.AcceptTCP()
		switch {
		case err == nil:
			pause = time.Millisecond
			p.done.Go(func() { p.forward(c) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			p.throttle.Warn(p.log, time.Second, "accept of an outbound connection failed; retrying", "error", err,
				"hint", listen.AcceptHint(err))
			if poll.Pause(p.ctx, pause) != nil {
				return
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// own makes close end the reads and writes of a connection, which release closes.
func (p *outboundProxy) own(c *net.TCPConn) (release func()) {
	stop := context.AfterFunc(p.ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() {
		stop()
		_ = c.Close()
	}
}

func (p *outboundProxy) forward(app *net.TCPConn) {
	p.count(1)
	defer p.count(-1)
	defer p.own(app)()
	to, err := tcp.OriginalDestination(app)
	if err == nil && p.isOwn(to) {
		err = tcp.ErrNotCaptured
	}
	if err != nil {
		p.failed.Add(1)
		p.throttle.Warn(p.log, time.Second, "outbound connection has no destination; closing it",
			"from", app.RemoteAddr().String(), "error", err)
		return
	}
	conn, err := (&net.Dialer{KeepAliveConfig: tcp.KeepAlive}).DialContext(p.ctx, "tcp", to.String())
	if err != nil {
		// The app sees a reset, as from a destination that refuses the connection.
		p.failed.Add(1)
		p.log.Debug("outbound destination unreachable", "to", to.String(), "error", err)
		_ = app.SetLinger(0)
		return
	}
	server := conn.(*net.TCPConn)
	defer p.own(server)()
	var back sync.WaitGroup
	back.Go(func() { pump(app, server) })
	pump(server, app)
	back.Wait()
}

// pump forwards one direction, by splice(2) where possible, and its FIN. After anything else it ends both directions.
func pump(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.SetLinger(0)
		_ = to.SetDeadline(time.Now())
		_ = from.SetDeadline(time.Now())
		return
	}
	_ = to.CloseWrite()
}

func (p *outboundProxy) count(n int64) {
	p.open.Add(n)
	p.changed.Store(time.Now().UnixNano())
	if n > 0 {
		p.total.Add(1)
	}
}
