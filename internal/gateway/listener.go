package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// listener is one way in.
type listener struct {
	net.Listener
	tls  *tls.Config // nil for clear text
	done chan struct{}
}

const (
	// backlogTime is how long the listener's queue may be empty before it counts as
	// emptied: a client whose handshake is complete must not be reset.
	backlogTime = time.Millisecond

	// handshakeTimeout bounds TLS handshakes.
	handshakeTimeout = 10 * time.Second
)

// close stops listening. With empty, what has connected already is taken first.
func (l *listener) close(empty bool) {
	if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok && empty {
		_ = d.SetDeadline(time.Now().Add(backlogTime))
		<-l.done
	}
	_ = l.Listener.Close()
	<-l.done
}

// accept takes connections until the listener is closed, or its deadline has passed with
// nobody there. A listener that somebody else has closed is an error.
func (p *Plane) accept(l *listener) error {
	defer close(l.done)
	var latest time.Time
	pause := time.Millisecond
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			latest, pause = time.Now(), time.Millisecond
			p.take(c, l.tls)
		case errors.Is(err, os.ErrDeadlineExceeded):
			if time.Since(latest) > backlogTime {
				return nil
			}
			_ = l.Listener.(interface{ SetDeadline(time.Time) error }).SetDeadline(time.Now().Add(backlogTime))
		case p.refusing.Load():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("gateway: accept on %s: %w", l.Addr(), err)
		case errors.Is(err, syscall.ECONNABORTED): // it has gone again
		default: // no descriptors, no memory
			p.log.Warn("a connection could not be accepted; it waits", "listener", l.Addr().String(), "error", err)
			select {
			case <-time.After(pause):
			case <-p.exited:
				return nil
			}
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

// intake is the net.Listener through which connections get to an http.Server.
type intake struct {
	conns chan net.Conn
	done  chan struct{}
}

func newIntake() *intake { return &intake{make(chan net.Conn), make(chan struct{})} }

func (in *intake) Accept() (net.Conn, error) {
	select {
	case c := <-in.conns:
		return c, nil
	case <-in.done:
		return nil, net.ErrClosed
	}
}

func (in *intake) Close() error {
	select {
	case <-in.done:
	default:
		close(in.done)
	}
	return nil
}

func (*intake) Addr() net.Addr { return &net.TCPAddr{} }
