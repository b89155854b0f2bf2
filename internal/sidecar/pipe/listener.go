package pipe

import (
	"cmp"
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
	spare            *tcp.Reserved     // for the next client's connection to the app; nil: none, or not needed
	http             ports             // at which its app has answered HTTP
}

// open listens. accept has to follow.
func (l *listener) open() error {
	ln, err := l.listen("tcp", l.Listen)
	if err != nil {
		return fmt.Errorf("listen for inbound on %s (app %s): %w", l.Listen, l.App, err)
	}
	l.Listener = listen.New(ln, l.listen, func(client net.Conn) net.Conn {
		l.p.serve(l, client.(*tcp.Socket))
		l.reserve()
		return nil
	})
	return nil
}

func (l *listener) listen(network, address string) (net.Listener, error) {
	ln, err := l.p.cfg.open(network, address)
	if err != nil {
		return nil, err
	}
	return tcp.Accepting(ln.(*net.TCPListener), l.p.cfg.KeepAlive)
}

func (l *listener) loadTLS() (err error) {
	if l.TLS == nil {
		return nil
	}
	protocols := []string{"http/1.1"}
	if !l.Protocol.IsHTTP() {
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
	defer func() { l.spare.Close() }()
	l.reserve()
	pause := minAcceptPause
	last := time.Now()
	for {
		_, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		// Out of file descriptors or memory, or the client has closed its connection.
		if errors.Is(err, syscall.ECONNABORTED) {
			l.stats.AcceptErrors.Add(1)
			continue
		}
		_ = l.p.isOutOfFiles(err)
		if time.Since(last) > 2*maxAcceptPause {
			pause = minAcceptPause
		}
		l.pauseAfter(err, &pause)
		last = time.Now()
	}
}

// Between attempts to accept after an error.
const (
	minAcceptPause = time.Millisecond
	maxAcceptPause = 100 * time.Millisecond
)

func (p *Pipe) serve(l *listener, client *tcp.Socket) {
	limit := int64(max(0, cmp.Or(l.MaxConnections, p.cfg.MaxConnections))) // 0: none
	overLimit := limit > 0 && l.stats.Open.Load()-l.stats.OverLimit.Load() >= limit ||
		l.MaxConnections == 0 && !p.makeRoom(client)
	if overLimit {
		l.stats.Overflowed.Add(1)
		p.warn("connection limit reached; refusing connections", "listener", l.Listen, "limit", limit,
			"from", client.RemoteAddr().String())
		if !l.Protocol.IsHTTP() || l.stats.OverLimit.Load() >= maxOverLimit { // no reply
			_ = client.Close()
			return
		}
	}
	c := &conn{p: p, in: l, client: client, overLimit: overLimit, began: time.Now()}
	c.up.c, c.down.c, c.share.Owner = c, c, client
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
	if !overLimit {
		c.reserved, l.spare = l.spare, nil
	}
	l.stats.Connections.Add(1)
	if !c.isIgnored() {
		p.arrivals.Add(1)
	}
	c.mu.Lock()
	if l.tls != nil {
		wait := l.tls.Timeout
		if p.closing.holds() { // it is busy for a moment, because a request should follow
			c.arriving, wait = true, firstRequestTime
		}
		_ = client.SetReadDeadline(time.Now().Add(wait))
	} else {
		l.beginLocked(c)
	}
	c.recountLocked()
	c.mu.Unlock()
	p.start(c.serve)
}

func (l *listener) beginLocked(c *conn) {
	switch l.Protocol {
	case Auto, HTTP:
	case TCP:
		c.mode = opaque
		c.noteOpaque(counters.OpaqueTCP)
		return
	default:
		databases[l.Protocol-Postgres].followLocked(c)
	}
	if l.p.closing.holds() { // it is busy for a moment, for its first request
		c.awaitsFirst, c.arriving, c.up.timed = true, true, true
		_ = c.client.SetReadDeadline(time.Now().Add(firstRequestTime))
	}
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

// Listener is the state of one listener.
type Listener struct {
	Inbound
	Addr    net.Addr // where it listens, or listened
	Open    int      // clients' connections that have not ended
	Busy    int      // of them, as in drain.Activity
	AppOpen int      // connections to the app
	Stats   counters.Stats
	TLS     *tlsserver.Stats // nil if TLS is not terminated here
}

// Label is the listener's name in metrics and lists: its own, or its address.
func (l *Listener) Label() string { return label(&l.Inbound, l.Addr) }

func label(in *Inbound, addr net.Addr) string { return cmp.Or(in.Name, addr.String()) }

// Listeners describes the listeners in the order of the configuration.
func (p *Pipe) Listeners() []Listener {
	out := make([]Listener, len(p.listeners))
	for i, l := range p.listeners {
		out[i] = Listener{
			Inbound: l.Inbound,
			Addr:    l.Addr(),
			Open:    max(0, int(l.stats.Open.Load())),
			Busy:    max(0, int(l.stats.Busy.Load())),
			AppOpen: max(0, int(l.stats.AppOpen.Load())),
			TLS:     l.tls.Stats(),
		}
		l.stats.AddTo(&out[i].Stats)
	}
	return out
}

// Connections beyond MaxConnections are accepted and answered instead of waiting invisibly in the kernel's queue: HTTP
// gets a 503 for its first request, as from Envoy's circuit breaker, without a connection to the app; other protocols
// are closed. The replies are limited, too.

var errOverLimit = errors.New("connection limit reached")
