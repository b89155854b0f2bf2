package pipe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/listen"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// listener accepts the clients of one Inbound. It can stop listening and resume.
type listener struct {
	Inbound
	*listen.Listener // nil before open
	p                *Pipe
	stats            counters.Listener
	tls              *tlsserver.Server // nil: TLS is not terminated here
}

// open listens. accept has to follow.
func (l *listener) open() error {
	ln, err := l.listen("tcp", l.Listen)
	if err != nil {
		return fmt.Errorf("listen for inbound on %s (app %s): %w", l.Listen, l.App, err)
	}
	l.Listener = listen.New(ln, l.listen, func(client net.Conn) net.Conn {
		l.p.serve(l, client.(*tcp.Socket))
		return nil
	})
	return nil
}

func (l *listener) listen(network, address string) (net.Listener, error) {
	ln, err := l.p.cfg.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return tcp.Accepting(ln.(*net.TCPListener), l.p.cfg.KeepAlive)
}

// loadTLS reads the certificate of a listener that terminates TLS.
func (l *listener) loadTLS() (err error) {
	if l.TLS == nil {
		return nil
	}
	protocols := []string{"http/1.1"}
	if l.Protocol == TCP {
		protocols = nil
	}
	if l.tls, err = tlsserver.New(l.TLS, protocols, l.p.cfg.HandshakeTimeout, l.Listen, l.p.cfg.Log); err != nil {
		return fmt.Errorf("TLS of inbound %s: %w", l.Listen, err)
	}
	l.p.watches.Go(func() { l.tls.Follow(l.p.ctx) })
	return nil
}

// accept serves connections until the listener is closed.
func (l *listener) accept() {
	pause := minAcceptPause
	last := time.Now()
	for {
		_, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors or memory, or the client has closed its connection.
		l.stats.AcceptErrors.Add(1)
		if errors.Is(err, syscall.ECONNABORTED) {
			continue
		}
		if time.Since(last) > 2*maxAcceptPause {
			pause = minAcceptPause
		}
		l.p.warn("accept failed; retrying", "listener", l.Listen, "error", err, "hint", listen.AcceptHint(err))
		time.Sleep(pause)
		pause = min(2*pause, maxAcceptPause)
		last = time.Now()
	}
}

// Between attempts to accept after an error.
const (
	minAcceptPause = time.Millisecond
	maxAcceptPause = 100 * time.Millisecond
)

// serve starts a connection.
func (p *Pipe) serve(l *listener, client *tcp.Socket) {
	overLimit := l.isOverLimit() || l.MaxConnections == 0 && !p.makeRoom(client)
	if overLimit && !l.refuseOverLimit(client) {
		return
	}
	c := &conn{p: p, in: l, client: client, overLimit: overLimit, began: time.Now()}
	c.up.c, c.down.c = c, c
	if l.tls != nil {
		client.Terminate(l.tls.Config, c.up.handshakeContinues)
	}
	if l.App == "" {
		var err error
		if c.origin, err = l.originOf(client); err != nil {
			l.stats.CountRefused(0)
			p.warn("inbound connection has no destination; closing it", "from", client.RemoteAddr().String(), "error", err)
			_ = client.CloseClear()
			return
		}
	}
	c.idleSince = c.began
	if !p.add(c) {
		_ = client.CloseClear()
		return
	}
	l.stats.Connections.Add(1)
	if !c.isIgnored() {
		p.arrivals.Add(1)
	}
	c.mu.Lock()
	switch {
	case l.tls != nil:
		c.awaitHandshakeLocked()
	case l.Protocol == TCP:
		c.mode = opaque
		c.noteOpaque(counters.OpaqueTCP)
	case p.closing.holds():
		c.awaitFirstLocked()
	}
	c.recountLocked()
	c.mu.Unlock()
	p.start(c.serve)
}

// originOf is the original destination of a captured connection. A listener of this pipe is an error: it would loop.
func (l *listener) originOf(client *tcp.Socket) (netip.AddrPort, error) {
	to, err := client.OriginalDestination()
	if err != nil {
		return to, err
	}
	for _, other := range l.p.listeners {
		if tcp.AddrPort(other.Addr()).Port() == to.Port() {
			return to, tcp.ErrNotCaptured
		}
	}
	if slices.Contains(l.p.cfg.OwnPorts, to.Port()) {
		return to, errOwnPort
	}
	return to, nil
}

// errOwnPort is a captured connection to the status server or the admin API, which would take it for the pod's own.
var errOwnPort = errors.New("destination is a port of lastcall itself, which only the pod may use")

// ignores reports whether connections to a port never count.
func (l *listener) ignores(port uint16) bool {
	return len(l.Ignore) > 0 && slices.Contains(l.Ignore, port)
}
