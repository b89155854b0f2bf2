// Package outbound forwards an app's captured outbound connections to their original destinations.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Proxy forwards bytes and takes no part in a drain: the app can open new connections until it exits.
type Proxy struct {
	ln       *net.TCPListener
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	isOwn    func(netip.AddrPort) bool
	throttle logs.Throttle

	open    atomic.Int64
	total   atomic.Uint64
	failed  atomic.Uint64
	changed atomic.Int64 // when open changed last, Unix ns

	mu    sync.Mutex // guards conns
	conns map[*net.TCPConn]bool
	done  sync.WaitGroup
}

// Stats are counters since the start, and the open connections of this moment.
type Stats struct {
	Open   int
	Total  uint64
	Failed uint64 // connections whose destination could not be reached
}

// Start listens at address for captured connections. isOwn reports whether a destination is a listener of this process:
// a connection to it would loop.
func Start(address string, isOwn func(netip.AddrPort) bool, log *slog.Logger) (*Proxy, error) {
	lc := net.ListenConfig{KeepAliveConfig: tcp.KeepAlive}
	lc.SetMultipathTCP(false) // it has no original destination
	ln, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for outbound connections on %s: %w", address, err)
	}
	p := &Proxy{ln: ln.(*net.TCPListener), log: log, isOwn: isOwn, conns: make(map[*net.TCPConn]bool)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.changed.Store(time.Now().UnixNano())
	p.done.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() net.Addr { return p.ln.Addr() }

// Stats reads the counters.
func (p *Proxy) Stats() Stats {
	return Stats{Open: int(p.open.Load()), Total: p.total.Load(), Failed: p.failed.Load()}
}

// Finish waits until all connections have ended, or ctx ends. When the app has exited, its last bytes may still be in
// flight: its ends of the connections are closed, so each ends as soon as the other side closes.
func (p *Proxy) Finish(ctx context.Context) {
	began := time.Now()
	_ = poll.Until(ctx, time.Millisecond, func() bool {
		// A connection may wait to be accepted: for a moment none is open.
		since := time.Since(time.Unix(0, p.changed.Load()))
		return p.open.Load() == 0 && min(since, time.Since(began)) >= acceptTime
	})
}

// acceptTime is how long an established connection may take to be accepted.
const acceptTime = 10 * time.Millisecond

// Close ends everything at once. It is called when the app has exited.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.ln.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.SetDeadline(time.Now())
	}
	p.mu.Unlock()
	p.done.Wait()
}

func (p *Proxy) accept() {
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
			select {
			case <-time.After(pause):
			case <-p.ctx.Done():
				return
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// hold adds a connection to those that Close ends. It returns false after Close.
func (p *Proxy) hold(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) release(c *net.TCPConn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close()
}

func (p *Proxy) forward(app *net.TCPConn) {
	p.count(1)
	defer p.count(-1)
	defer p.release(app)
	if !p.hold(app) {
		return
	}
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
	defer p.release(server)
	if !p.hold(server) {
		return
	}
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

func (p *Proxy) count(n int64) {
	p.open.Add(n)
	p.changed.Store(time.Now().UnixNano())
	if n > 0 {
		p.total.Add(1)
	}
}
