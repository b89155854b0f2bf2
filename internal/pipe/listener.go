package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// listener is one way in. It can be closed and opened again.
type listener struct {
	Inbound
	p     *Pipe
	stats stats
	addr  net.Addr     // of the first open; the same port is taken again
	tls   *termination // nil: bytes come as they are

	mu   sync.Mutex // guards what follows
	ln   *net.TCPListener
	done chan struct{} // closed when the accept loop of ln has ended
}

// open listens and accepts. An open listener stays as it is.
func (l *listener) open() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln != nil {
		return nil
	}
	address := l.Listen
	if l.addr != nil {
		address = l.addr.String()
	}
	ln, err := l.p.cfg.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for inbound on %s (app %s): %w", address, l.App, err)
	}
	l.ln = ln.(*net.TCPListener)
	if l.addr == nil { // set once: it is read without the lock
		l.addr = ln.Addr()
	}
	l.done = make(chan struct{})
	go l.accept(l.ln, l.done)
	return nil
}

// secure makes ready for TLS, where it ends here.
func (l *listener) secure() (err error) {
	if l.TLS == nil {
		return nil
	}
	if l.tls, err = newTermination(&l.Inbound, l.p.cfg.HandshakeTimeout, l.p.cfg.Log); err != nil {
		return fmt.Errorf("TLS of inbound %s: %w", l.Listen, err)
	}
	l.p.watches.Go(func() { l.tls.follow(l.p.ctx) })
	return nil
}

// empty stops listening as close does, after the connections in the listener's queue
// have been accepted: a client that has completed its handshake must not be reset.
func (l *listener) empty(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln == nil {
		return nil
	}
	_ = l.ln.SetDeadline(time.Now().Add(tcp.Settle))
	var err error
	select {
	case <-l.done:
		err = tcp.TakeQueued(ctx, l.ln, func(client *net.TCPConn) { l.p.serve(l, client) })
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.closeLocked()
	if err != nil {
		return fmt.Errorf("empty the queue of inbound %s: %w", l.Listen, err)
	}
	return nil
}

// close stops listening and waits for the accept loop.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ln != nil {
		l.closeLocked()
	}
}

func (l *listener) closeLocked() {
	_ = l.ln.Close()
	<-l.done
	l.ln = nil
}

// accept takes connections until the listener is closed or its deadline has passed.
func (l *listener) accept(ln *net.TCPListener, done chan struct{}) {
	defer close(done)
	pause := time.Millisecond
	for {
		client, err := ln.AcceptTCP()
		switch {
		case err == nil:
			pause = time.Millisecond
			l.p.serve(l, client)
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return
		default: // no descriptors, no memory, or a client that has gone again
			l.stats.acceptErrors.Add(1)
			if !errors.Is(err, syscall.ECONNABORTED) {
				l.p.complain("a connection could not be accepted; it waits", "listener", l.Listen, "error", err, "hint", hintFor(err))
				time.Sleep(pause)
				pause = min(2*pause, 100*time.Millisecond)
			}
		}
	}
}

func hintFor(err error) string {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return "the table of open files is full: raise the limit (ulimit -n, LimitNOFILE); each connection takes two"
	}
	return ""
}

// serve begins a conversation.
func (p *Pipe) serve(l *listener, client *net.TCPConn) {
	surplus := l.isSurplus()
	if surplus && !l.refuseSurplus(client) {
		return
	}
	s, err := newSocket(client)
	if err != nil {
		_ = client.Close()
		return
	}
	c := &conn{p: p, in: l, client: s, surplus: surplus, began: time.Now()}
	if l.tls != nil {
		newSecure(s, l.tls.config)
	}
	if l.App == "" {
		if c.origin, err = l.originOf(client); err != nil {
			l.stats.refused.Add(1)
			p.complain("an inbound connection has nowhere to go; it is closed", "from", client.RemoteAddr().String(), "error", err)
			_ = client.Close()
			return
		}
	}
	c.idleSince = c.began
	if !p.add(c) {
		_ = client.Close()
		return
	}
	if keep := p.cfg.KeepAlive; keep != 0 {
		_ = client.SetKeepAliveConfig(net.KeepAliveConfig{Enable: keep > 0, Idle: keep, Interval: keep, Count: keepAliveProbes})
	}
	l.stats.connections.Add(1)
	if !c.uncounted() {
		p.arrivals.Add(1)
	}
	c.mu.Lock()
	switch {
	case l.tls != nil:
		c.awaitHandshake()
	case l.Protocol == TCP:
		c.mode = opaque
		c.noteOpaque(OpaqueTCP)
	case p.closing.holds():
		c.awaitFirst()
	}
	c.recount()
	c.mu.Unlock()
	go c.serve()
}

// originOf is where a captured connection wanted to go. It is an error when that
// is a listener of ours: it would come round for ever.
func (l *listener) originOf(client *net.TCPConn) (netip.AddrPort, error) {
	to, err := originalDst(client)
	if err != nil {
		return to, err
	}
	for _, other := range l.p.listeners {
		if addrPort(other.addr).Port() == to.Port() {
			return to, errNotCaptured
		}
	}
	if slices.Contains(l.p.cfg.OwnPorts, to.Port()) {
		return to, errOwnPort
	}
	return to, nil
}

// errOwnPort is a captured connection to the status server or the admin API: what
// comes from outside must not reach them as the pod's own.
var errOwnPort = errors.New("it wants to reach a port of lastcall's own, which is for the pod alone")

// uncounts says whether connections to a port never count.
func (l *listener) uncounts(port uint16) bool {
	return len(l.Ignore) > 0 && slices.Contains(l.Ignore, port)
}
