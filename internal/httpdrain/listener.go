package httpdrain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// backlogTime is how long the queue may be empty before it counts as emptied: a client
// whose handshake is complete must not be reset.
const backlogTime = time.Millisecond

// listener can be closed and opened again without its http.Server knowing: Accept waits
// meanwhile.
type listener struct {
	p    *Plane
	addr net.Addr // of the first: the same port is taken again

	mu       sync.Mutex    // guards what follows
	inner    net.Listener  // nil while closed
	emptying bool          // it is to be closed when nobody is in its queue
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
	var latest time.Time
	for {
		l.mu.Lock()
		inner, emptying, closed, changed := l.inner, l.emptying, l.closed, l.changed
		l.mu.Unlock()
		switch {
		case closed:
			return nil, net.ErrClosed
		case inner == nil:
			<-changed
			continue
		}
		nc, err := inner.Accept()
		switch {
		case err == nil:
			return l.p.accepted(nc), nil
		case emptying && errors.Is(err, os.ErrDeadlineExceeded):
			if latest.IsZero() { // one more look: the deadline may have passed before the queue was looked at
				latest = time.Now()
				_ = setDeadline(inner, latest.Add(backlogTime))
				continue
			}
			_ = inner.Close()
			l.set(func() { l.inner, l.emptying = nil, false })
			latest = time.Time{}
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
	if setDeadline(inner, time.Now().Add(backlogTime)) != nil {
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
	inner, err := net.Listen(l.addr.Network(), l.addr.String())
	if err != nil {
		return fmt.Errorf("listen again on %s: %w", l.addr, err)
	}
	l.set(func() { l.inner = inner })
	return nil
}

// Close ends the listener for good.
func (l *listener) Close() error {
	l.mu.Lock()
	inner, was := l.inner, l.closed
	l.mu.Unlock()
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
