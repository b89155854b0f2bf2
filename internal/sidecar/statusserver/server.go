// Package statusserver has the common parts of the small HTTP servers next to the traffic: the status port, the admin
// API, the probes and metrics of the gateway and the webhook.
//
// The promises:
//
//   - Whatever peers do, a server takes a bounded amount of memory: it limits connections, concurrent scrapes and
//     header sizes, and every response has a deadline.
//   - A peer that takes more than its share displaces itself: at the limit, the oldest connection of the address with
//     the most connections is ended. Another peer's probe or hook is served.
//   - Requests that wait (Hold, HoldHook) have connections of their own: they shut out neither each other nor probes.
//   - Endpoints for the machine itself are closed to web pages (Local).
package statusserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	headTimeout = 10 * time.Second // for a request's head and body, so that a silent peer keeps no connection
	idleTimeout = 5 * time.Minute  // a tool that polls reuses its connection
	maxHead     = 16 << 10         // bytes; net/http adds 4 KiB
	maxBody     = 64 << 10         // bytes of a request's body; no command has one

	// WriteTime limits how long a response may take to be written.
	WriteTime = 10 * time.Second

	// maxConnections is for the probes and scrapes of a pod: a few at a time.
	maxConnections = 128

	// maxOwn and maxHooks are for the requests that Hold and HoldHook hold: a few for each container of a pod.
	maxOwn   = 64
	maxHooks = 32

	// The kernel's buffers count as the pod's memory, too.
	sendBuffer    = 64 << 10
	receiveBuffer = 16 << 10
)

// New returns a server with limits on everything that peers can make it keep. Its listener has to be wrapped by Limit.
// Hold and HoldHook do not work if ConnState is replaced.
func New(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           withoutBody(h),
		ReadHeaderTimeout: headTimeout,
		WriteTimeout:      WriteTime,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			if held, ok := c.(*conn); ok && state == http.StateIdle { // its response has been sent
				held.move(held.of.open)
			}
		},
	}
}

type connKey struct{}

// withoutBody reads a request's body, with a deadline: net/http would read it without one before it writes the
// response.
func withoutBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(headTimeout))
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
				http.Error(w, "requests to this port must not have a body", http.StatusRequestEntityTooLarge)
				return
			}
			_ = control.SetReadDeadline(time.Time{})
		}
		h.ServeHTTP(w, r)
	})
}

// Limit bounds the open connections of a listener. Requests that wait, as preStop hooks do, have shares of their own:
// they take no connection from probes and scrapes.
func Limit(ln net.Listener) net.Listener {
	l := &listener{Listener: ln, open: NewSlots(maxConnections), own: NewSlots(maxOwn), hooks: NewSlots(maxHooks)}
	l.hooks.keepFirst = true
	return l
}

type listener struct {
	net.Listener
	open, own, hooks *Slots
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		_, _ = t.SetWriteBuffer(sendBuffer), t.SetReadBuffer(receiveBuffer)
	}
	return l.hold(c), nil
}

func (l *listener) hold(c net.Conn) *conn {
	held := &conn{Conn: c, of: l}
	held.move(l.open)
	return held
}

// conn is a connection of a listener with a limit.
type conn struct {
	net.Conn
	of *listener

	mu     sync.Mutex
	slot   *Slot
	closed bool
}

// move takes a slot of a share in place of the present one.
func (c *conn) move(to *Slots) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.slot != nil && c.slot.of == to {
		return
	}
	if c.slot != nil {
		c.slot.Release()
	}
	c.slot = to.Take(c.RemoteAddr().String(), 1, func() { _ = c.Conn.Close() })
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.slot.Release()
	c.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which half-closes before it closes.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Hold keeps the connection of a request that waits without a deadline, in the share of requests from the same pod:
// until its response has been sent, connections of others do not end it. From release on the response has WriteTime.
func Hold(w http.ResponseWriter, r *http.Request) (release func()) {
	return hold(w, r, func(l *listener) *Slots { return l.own })
}

// HoldHook is Hold for a preStop hook that arrives from the node. Any peer with the pod's token can send one, so these
// have a share of their own: of an address that sends too many, the first and the latest are kept.
func HoldHook(w http.ResponseWriter, r *http.Request) (release func()) {
	return hold(w, r, func(l *listener) *Slots { return l.hooks })
}

func hold(w http.ResponseWriter, r *http.Request, share func(*listener) *Slots) (release func()) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.move(share(c.of))
	}
	return func() { _ = control.SetWriteDeadline(time.Now().Add(WriteTime)) }
}

const (
	// answerTime limits how long the end of a server waits for the responses that are due.
	answerTime = 200 * time.Millisecond

	// lastChunk is how long it then waits for their last chunks, which net/http writes after the handler.
	lastChunk = 20 * time.Millisecond
)

// Server is a server of New that serves.
type Server struct {
	*http.Server
	due    sync.RWMutex // read-locked by each request in progress
	served chan struct{}
}

// Serve serves a listener until End.
func Serve(server *http.Server, ln net.Listener, log *slog.Logger) *Server {
	s := &Server{Server: server, served: make(chan struct{})}
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.due.RLock()
		defer s.due.RUnlock()
		handler.ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
	})
	go func() {
		defer close(s.served)
		if err := server.Serve(Limit(ln)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("a server has ended", "listen", ln.Addr().String(), "error", err)
		}
	}()
	return s
}

// End waits for the requests in progress, for 200 ms at most, and only for them: Shutdown also waits for connections
// without a request. It then ends the server, which cancels the contexts of the others, and waits for these.
func (s *Server) End() {
	answered := make(chan struct{})
	go func() { defer close(answered); s.due.Lock() }()
	select {
	case <-answered:
	case <-time.After(answerTime):
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastChunk)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close()
	}
	<-s.served
	<-answered
	s.due.Unlock()
}

// Local refuses requests from web pages: on the machine of a user with a browser, or through a forwarded port, these
// come from localhost too.
func Local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := Foreign(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Foreign is the reason why a request counts as a web page's: it has another origin, or its host name was resolved to
// this address by a foreign name server (DNS rebinding). It is nil for other clients, which send neither Origin nor
// Sec-Fetch-Site, and for pages of this server.
func Foreign(r *http.Request) error {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
	default:
		return errors.New("request from another site's page refused (Sec-Fetch-Site)")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || u.Host == "" || u.Host != r.Host {
			return fmt.Errorf("request from another site's page refused (Origin %.100q)", origin)
		}
	}
	if !isLocalName(r.Host) {
		return fmt.Errorf("request for host %.100q refused: must be localhost or an IP address", r.Host)
	}
	return nil
}

// isLocalName reports whether a Host cannot have been resolved to this address by a foreign name server: an IP address,
// localhost, or none (HTTP/1.0).
func isLocalName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// IsLoopback reports whether a request arrived at a loopback address, which no other machine can reach.
func IsLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
