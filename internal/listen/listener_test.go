package listen

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
)

// Clients that connect before Stop are accepted, those that connect after it are refused, and those that
// connect after Resume reach the same port.
func TestListenerStopsAndResumes(t *testing.T) {
	accepted := 0
	l := New(listen(t), Open, func(c net.Conn) net.Conn {
		accepted++
		return c
	})
	got := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			got <- c
		}
	}()
	for round := range 3 {
		for range 5 {
			dial(t, l)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- l.Stop(t.Context()) }()
		for range 5 {
			_ = (<-got).Close()
		}
		if err := <-stopped; err != nil || accepted != 5*(round+1) {
			t.Fatalf("round %d: %d accepted, %v", round, accepted, err)
		}
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			_ = c.Close()
			t.Error("a stopped listener was connected to")
		}
		if err := errors.Join(l.Resume(), l.Resume()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if err := l.Resume(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("a closed listener has resumed")
	}
}

// Nothing accepts: Stop returns when its context ends, and the socket is closed all the same.
func TestListenerStopHeedsItsContext(t *testing.T) {
	l := New(listen(t), Open, func(c net.Conn) net.Conn { return c })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is still open")
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A listener that other code has closed is a failed one.
func TestListenerClosedByOthers(t *testing.T) {
	for name, when := range map[string]func(net.Listener, func()){
		"before": func(ln net.Listener, accept func()) { _ = ln.Close(); accept() },
		"during": func(ln net.Listener, accept func()) { go func() { _ = ln.Close() }(); accept() },
	} {
		t.Run(name, func(t *testing.T) {
			ln := listen(t)
			var mu sync.Mutex
			g := NewGroup(&mu)
			when(ln, func() {
				err := g.Serve(ln, func(c net.Conn) net.Conn { return c }, func(l net.Listener) error {
					_, err := l.Accept()
					return err
				})
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			})
			<-g.Exited()
		})
	}
}
