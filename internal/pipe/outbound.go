package pipe

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

	"github.com/lastcall-dev/lastcall/internal/logs"
)

// Outbound carries what the app says to others, when it is captured: bytes, to
// where the app wanted them. It is no part of a drain: nothing is said goodbye
// to, and the app can open new connections until it is gone itself.
type Outbound struct {
	ln       *net.TCPListener
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	own      func(netip.AddrPort) bool
	throttle logs.Throttle

	open   atomic.Int64
	total  atomic.Uint64
	failed atomic.Uint64
	moved  atomic.Int64 // when the number of open connections changed last, Unix ns

	mu    sync.Mutex // guards conns
	conns map[*net.TCPConn]bool
	done  sync.WaitGroup
}

// OutboundStats are of this moment and, of those that only grow, since the start.
type OutboundStats struct {
	Open   int
	Total  uint64
	Failed uint64 // connections whose destination could not be reached
}

// StartOutbound listens at address for captured connections. own says which
// destinations are this pipe's own listeners: a connection there would come round
// for ever.
func StartOutbound(address string, own func(netip.AddrPort) bool, log *slog.Logger) (*Outbound, error) {
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	ln, err := lc.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for outbound on %s: %w", address, err)
	}
	o := &Outbound{ln: ln.(*net.TCPListener), log: log, own: own, conns: make(map[*net.TCPConn]bool)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	o.moved.Store(time.Now().UnixNano())
	o.done.Go(o.accept)
	return o, nil
}

// Addr is where it listens.
func (o *Outbound) Addr() net.Addr { return o.ln.Addr() }

// Stats reads the counts.
func (o *Outbound) Stats() OutboundStats {
	return OutboundStats{Open: int(o.open.Load()), Total: o.total.Load(), Failed: o.failed.Load()}
}

// Finish waits until all connections have ended, or ctx ends. When the app is gone, what it
// wrote last may still be on its way: its end of each connection is closed, so that they end
// by themselves as soon as the other side closes its own.
func (o *Outbound) Finish(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		// A connection may wait to be accepted: none is open for a moment.
		since := time.Since(time.Unix(0, o.moved.Load()))
		if o.open.Load() == 0 && min(since, time.Since(began)) >= acceptTime {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// acceptTime is how long a connection that has been made may take to be accepted.
const acceptTime = 10 * time.Millisecond

// Close ends everything at once: it is called when the app is gone.
func (o *Outbound) Close() {
	o.cancel()
	_ = o.ln.Close()
	o.mu.Lock()
	for c := range o.conns {
		_ = c.SetDeadline(time.Now())
	}
	o.mu.Unlock()
	o.done.Wait()
}

func (o *Outbound) accept() {
	pause := time.Millisecond
	for {
		c, err := o.ln.AcceptTCP()
		switch {
		case err == nil:
			pause = time.Millisecond
			o.done.Go(func() { o.carry(c) })
		case errors.Is(err, net.ErrClosed):
			return
		default:
			o.throttle.Warn(o.log, time.Second, "an outbound connection could not be accepted; it waits", "error", err, "hint", hintFor(err))
			select {
			case <-time.After(pause):
			case <-o.ctx.Done():
				return
			}
			pause = min(2*pause, time.Second)
		}
	}
}

// hold takes a connection into the list of those that Close ends. It returns
// false when that has been.
func (o *Outbound) hold(c *net.TCPConn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() != nil {
		return false
	}
	o.conns[c] = true
	return true
}

func (o *Outbound) release(c *net.TCPConn) {
	o.mu.Lock()
	delete(o.conns, c)
	o.mu.Unlock()
	_ = c.Close()
}

func (o *Outbound) carry(app *net.TCPConn) {
	o.count(1)
	defer o.count(-1)
	defer o.release(app)
	if !o.hold(app) {
		return
	}
	to, err := originalDst(app)
	if err == nil && o.own(to) {
		err = errNotCaptured
	}
	if err != nil {
		o.failed.Add(1)
		o.throttle.Warn(o.log, time.Second, "an outbound connection has nowhere to go; it is closed", "from", app.RemoteAddr().String(), "error", err)
		return
	}
	conn, err := (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(o.ctx, "tcp", to.String())
	if err != nil {
		// The app sees a reset, as it would of a destination that refuses.
		o.failed.Add(1)
		o.log.Debug("an outbound destination cannot be reached", "to", to.String(), "error", err)
		_ = app.SetLinger(0)
		return
	}
	far := conn.(*net.TCPConn)
	defer o.release(far)
	if !o.hold(far) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { pump(app, far) })
	pump(far, app)
	back.Wait()
}

// pump moves one direction, by splice(2) where the kernel can, and passes its end
// on: a FIN as a FIN, anything else as the end of both.
func pump(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		_ = to.SetLinger(0)
		_ = to.SetDeadline(time.Now())
		_ = from.SetDeadline(time.Now())
		return
	}
	_ = to.CloseWrite()
}

func (o *Outbound) count(n int64) {
	o.open.Add(n)
	o.moved.Store(time.Now().UnixNano())
	if n > 0 {
		o.total.Add(1)
	}
}
