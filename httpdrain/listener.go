package httpdrain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// listener can be closed and opened again without its http.Server knowing: Accept waits
// meanwhile.
type listener struct {
	p    *Plane
	addr net.Addr // of the first: the same port is taken again

	mu       sync.Mutex    // guards what follows
	inner    net.Listener  // nil while closed
	emptying bool          // it is to be closed, after the connections in its queue have been accepted
	queued   []net.Conn    // those connections, until Accept has returned them
	closed   bool          // for good
	changed  chan struct{} // closed and replaced when inner or closed has changed
}

func (l *listener) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listener) Addr() net.Addr { return l.addr }

// Accept is net.Listener's. It ends only by Close, or when what is listened on breaks.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		inner, emptying, closed, changed := l.inner, l.emptying, l.closed, l.changed
		var next net.Conn
		if len(l.queued) > 0 {
			next, l.queued = l.queued[0], l.queued[1:]
		}
		l.mu.Unlock()
		switch {
		case next != nil:
			return next, nil
		case closed:
			return nil, net.ErrClosed
		case inner == nil:
			<-changed
			continue
		}
		nc, err := inner.Accept()
		switch {
		case err == nil:
			if c := l.p.accepted(nc); c != nil {
				return c, nil
			}
		case emptying && errors.Is(err, os.ErrDeadlineExceeded):
			l.empty(inner)
		case errors.Is(err, os.ErrDeadlineExceeded): // emptying has just begun
		case errors.Is(err, net.ErrClosed):
			l.set(func() {
				if l.inner == inner {
					l.inner, l.emptying = nil, false
				}
			})
		default:
			return nil, err
		}
	}
}

// empty closes what is listened on, after the connections in its queue have been accepted.
func (l *listener) empty(inner net.Listener) {
	var queued []net.Conn
	if ln, ok := inner.(*net.TCPListener); ok {
		// Without a context: it does not wait, and stop closes the listener when its own ends.
		_ = tcp.TakeQueued(context.Background(), ln, func(nc *net.TCPConn) {
			if c := l.p.accepted(nc); c != nil {
				queued = append(queued, c)
			}
		})
	}
	_ = inner.Close()
	l.set(func() {
		if l.inner == inner {
			l.inner, l.emptying = nil, false
		}
		if !l.closed {
			l.queued, queued = queued, nil
		}
	})
	for _, c := range queued {
		_ = c.Close()
	}
}

func setDeadline(l net.Listener, t time.Time) error {
	if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok {
		return d.SetDeadline(t)
	}
	return errors.ErrUnsupported
}

// stop closes what is listened on after it has been emptied, and waits for that. The server's
// accepting goroutine does the emptying.
func (l *listener) stop(ctx context.Context) error {
	l.mu.Lock()
	if l.inner == nil || l.closed {
		l.mu.Unlock()
		return nil
	}
	inner := l.inner
	l.emptying = true
	l.mu.Unlock()
	if setDeadline(inner, time.Now().Add(tcp.Settle)) != nil {
		_ = inner.Close()
	}
	for {
		l.mu.Lock()
		still, changed := l.inner == inner, l.changed
		l.mu.Unlock()
		if !still {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			_ = inner.Close()
			return fmt.Errorf("empty the queue of %s: %w", l.addr, ctx.Err())
		}
	}
}

// resume listens again.
func (l *listener) resume() error {
	l.mu.Lock()
	closed, emptying := l.inner == nil && !l.closed, l.emptying
	l.mu.Unlock()
	if emptying {
		if err := l.stop(context.Background()); err != nil { // nobody waited for it
			return err
		}
		closed = true
	}
	if !closed {
		return nil
	}
	inner, err := tcp.Listen(l.addr.Network(), l.addr.String())
	if err != nil {
		return fmt.Errorf("listen again on %s: %w", l.addr, err)
	}
	l.set(func() { l.inner = inner })
	return nil
}

// Close ends the listener for good.
func (l *listener) Close() error {
	l.mu.Lock()
	inner, was, queued := l.inner, l.closed, l.queued
	l.queued = nil
	l.mu.Unlock()
	for _, c := range queued {
		_ = c.Close()
	}
	if was {
		return nil
	}
	l.set(func() { l.inner, l.closed = nil, true })
	if inner == nil {
		return nil
	}
	return inner.Close()
}

// StopAccepting is drain.DataPlane's.
func (p *Plane) StopAccepting(ctx context.Context) error {
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.stop(ctx))
	}
	return errors.Join(errs...)
}
