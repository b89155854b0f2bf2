// Package listen has TCP listeners for IPv4 and IPv6 that can stop without resetting a client, and resume.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Settle is how long a listener that is about to be closed is still accepted from. A client regards its connection as
// established one way before it is in the listener's queue: on the same node that is microseconds.
const Settle = time.Millisecond

// Listener is a net.Listener that can stop and resume listening while its owner stays in Accept. No client that has
// completed its handshake is reset.
type Listener struct {
	// accepted handles each new connection, and has returned before Stop does. Accept returns its result, unless that is
	// nil.
	accepted func(net.Conn) net.Conn
	listen   func(network, address string) (net.Listener, error)
	addr     net.Addr // of the first socket; Resume listens there again

	mu       sync.Mutex    // guards the fields below
	inner    net.Listener  // nil while stopped
	emptying bool          // inner is about to be closed, after its queue has been accepted
	queued   []net.Conn    // connections from that queue that Accept has not returned yet
	closed   bool          // by Close
	changed  chan struct{} // closed and replaced when inner or closed changes
}

// New takes over an open listener. listen reopens it in Resume.
func New(open net.Listener, listen func(network, address string) (net.Listener, error),
	accepted func(net.Conn) net.Conn) *Listener {
	return &Listener{accepted: accepted, listen: listen, addr: open.Addr(), inner: open, changed: make(chan struct{})}
}

// Addr is where it listens, or listened before Stop.
func (l *Listener) Addr() net.Addr { return l.addr }

// Accept returns the next connection. While the listener is stopped it waits. After Close, and when other code has
// closed the listener, it returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
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
		c, err := inner.Accept()
		switch {
		case err == nil:
			if c := l.accepted(c); c != nil {
				return c, nil
			}
		case emptying && errors.Is(err, os.ErrDeadlineExceeded):
			l.empty(inner)
		case errors.Is(err, os.ErrDeadlineExceeded): // Stop has just been called
		case errors.Is(err, net.ErrClosed) && l.isStopping(inner):
			l.closeSocket(inner, nil)
		default:
			return nil, err
		}
	}
}

// isStopping reports whether Stop closes the socket, or Close has. No other code may.
func (l *Listener) isStopping(inner net.Listener) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.emptying || l.closed || l.inner != inner
}

// empty accepts the connections in the queue and closes the socket.
func (l *Listener) empty(inner net.Listener) {
	var queued []net.Conn
	serve := func(c net.Conn) {
		if c := l.accepted(c); c != nil {
			queued = append(queued, c)
		}
	}
	// No context is needed: TakeQueued does not wait, and Stop closes the socket when its context ends.
	switch ln := inner.(type) {
	case *net.TCPListener:
		_ = TakeQueued(context.Background(), ln, func(c *net.TCPConn) { serve(c) })
	case interface {
		TakeQueued(context.Context, func(net.Conn)) error
	}:
		_ = ln.TakeQueued(context.Background(), serve)
	}
	l.closeSocket(inner, queued)
}

// closeSocket closes inner and leaves the connections from its queue to Accept.
func (l *Listener) closeSocket(inner net.Listener, queued []net.Conn) {
	_ = inner.Close()
	l.change(func() {
		if l.inner == inner {
			l.inner, l.emptying = nil, false
		}
		if !l.closed {
			l.queued, queued = append(l.queued, queued...), nil
		}
	})
	for _, c := range queued {
		_ = c.Close()
	}
}

func (l *Listener) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// Stop closes the socket after Accept, which another goroutine must be calling, has accepted the connections in its
// queue. If ctx ends first, it closes the socket at once and returns an error.
func (l *Listener) Stop(ctx context.Context) error {
	l.mu.Lock()
	if l.inner == nil || l.closed {
		l.mu.Unlock()
		return nil
	}
	inner := l.inner
	l.emptying = true
	l.mu.Unlock()
	d, ok := inner.(interface{ SetDeadline(time.Time) error })
	if !ok || d.SetDeadline(time.Now().Add(Settle)) != nil {
		_ = inner.Close()
	}
	for {
		l.mu.Lock()
		isOpen, changed := l.inner == inner, l.changed
		l.mu.Unlock()
		if !isOpen {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			_ = inner.Close()
			return fmt.Errorf("empty the accept queue of %s: %w", l.addr, ctx.Err())
		}
	}
}

// Resume listens again after Stop. On an open listener it does nothing.
func (l *Listener) Resume() error {
	l.mu.Lock()
	stopped, emptying := l.inner == nil && !l.closed, l.emptying
	l.mu.Unlock()
	if emptying { // a Stop whose context ended has left it to Accept
		if err := l.Stop(context.Background()); err != nil {
			return err
		}
		stopped = true
	}
	if !stopped {
		return nil
	}
	inner, err := l.listen(l.addr.Network(), l.addr.String())
	if err != nil {
		return fmt.Errorf("listen again on %s: %w", l.addr, err)
	}
	l.change(func() { l.inner = inner })
	return nil
}

// Close closes the listener for good, without emptying its queue.
func (l *Listener) Close() error {
	var inner net.Listener
	var queued []net.Conn
	l.change(func() {
		inner, queued = l.inner, l.queued
		l.inner, l.queued, l.closed = nil, nil, true
	})
	for _, c := range queued {
		_ = c.Close()
	}
	if inner == nil {
		return nil
	}
	return inner.Close()
}

// AcceptHint is the remedy for an error of Accept; empty if unknown.
func AcceptHint(err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return "too many open files: raise the limit (ulimit -n, LimitNOFILE); each connection takes two"
	}
	return ""
}

// Open is net.Listen, except that an address without a host, or with the host ::, takes IPv4 and IPv6 even if the
// loopback interface does not have 127.0.0.1: package net then listens on one family only.
// Nor does it take Multipath TCP, to which package net's listeners agree: such a client falls back to TCP. A connection
// of MPTCP has no original destination, and no numbers of its own (TCP_INFO, SIOCOUTQ).
func Open(network, address string) (net.Listener, error) {
	var plain net.ListenConfig
	plain.SetMultipathTCP(false)
	host, port, err := net.SplitHostPort(address)
	if network != "tcp" || err != nil || host != "" && host != "::" {
		return plain.Listen(context.Background(), network, address)
	}
	dual := plain
	dual.Control = takeIPv4
	ln, err := dual.Listen(context.Background(), "tcp6", net.JoinHostPort("::", port))
	if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) { // a kernel without IPv6
		return plain.Listen(context.Background(), network, address)
	}
	return ln, err
}
