package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Group has the listeners of a data plane that serves in its callers' goroutines. The data plane's lock guards it.
type Group struct {
	Serving int // calls of Serve that have not returned

	mu     sync.Locker
	all    []*Listener
	ended  bool          // by End
	exited chan struct{} // closed when End has been called and nothing is served any longer, or a listener has failed
}

// NewGroup returns a Group that mu guards.
func NewGroup(mu sync.Locker) *Group { return &Group{mu: mu, exited: make(chan struct{})} }

// Serve serves on ln, which it takes over, until serve returns. After End that is no error.
func (g *Group) Serve(ln net.Listener, accepted func(net.Conn) net.Conn, serve func(net.Listener) error) error {
	l := New(ln, Open, accepted)
	g.mu.Lock()
	if g.ended {
		g.mu.Unlock()
		_ = ln.Close()
		return nil
	}
	g.all = append(g.all, l)
	g.Serving++
	g.mu.Unlock()
	err := serve(l)
	_ = l.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Serving--
	if g.ended && errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if err != nil || g.ended && g.Serving == 0 {
		g.exit()
	}
	if err != nil {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}

func (g *Group) exit() {
	select {
	case <-g.exited:
	default:
		close(g.exited)
	}
}

// End makes Serve return without an error. The lock is held.
func (g *Group) End() {
	if g.ended = true; g.Serving == 0 {
		g.exit()
	}
}

// HasEnded reports whether End has been called. The lock is held.
func (g *Group) HasEnded() bool { return g.ended }

// Exited is closed when nothing is served any longer, or a listener has failed.
func (g *Group) Exited() <-chan struct{} { return g.exited }

// Stop stops all listeners.
func (g *Group) Stop(ctx context.Context) error {
	return g.each(func(l *Listener) error { return l.Stop(ctx) })
}

// Resume listens again.
func (g *Group) Resume() error { return g.each((*Listener).Resume) }

// Close closes all listeners.
func (g *Group) Close() { _ = g.each((*Listener).Close) }

func (g *Group) each(f func(*Listener) error) error {
	g.mu.Lock()
	all := g.all
	g.mu.Unlock()
	var errs []error
	for _, l := range all {
		errs = append(errs, f(l))
	}
	return errors.Join(errs...)
}

// Feed is a listener whose connections its owner has accepted elsewhere.
type Feed struct {
	conns chan net.Conn
	done  chan struct{} // closed by Close
	once  sync.Once
}

// NewFeed returns an open Feed.
func NewFeed() *Feed { return &Feed{conns: make(chan net.Conn), done: make(chan struct{})} }

// Give waits until Accept has taken the connection. It returns false after Close.
func (f *Feed) Give(c net.Conn) bool {
	select {
	case f.conns <- c:
		return true
	case <-f.done:
		return false
	}
}

// Accept implements net.Listener.
func (f *Feed) Accept() (net.Conn, error) {
	select {
	case c := <-f.conns:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *Feed) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// Addr implements net.Listener.
func (f *Feed) Addr() net.Addr { return &net.TCPAddr{} }
