package sideport

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	headTimeout = 10 * time.Second // for a request's head and body, so that a silent peer holds nothing
	idleTimeout = 5 * time.Minute  // a tool that polls reuses its connection
	maxHead     = 16 << 10         // bytes; net/http adds 4 KiB
	maxBody     = 64 << 10         // bytes that are read of a request; no command has a body

	// WriteTime is how long an answer may take to be written.
	WriteTime = 10 * time.Second

	// maxConnections is for the probes, hooks and scrapes of a pod, of which there
	// are a handful at a time.
	maxConnections = 128

	// What the kernel keeps for a connection counts as the pod's memory, too.
	sendBuffer    = 64 << 10
	receiveBuffer = 16 << 10
)

// New is a server with limits on everything that peers can make it keep. Its
// listener has to go through Limit. A ConnState in place of its own goes without Hold.
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
			if held, ok := c.(*conn); ok && state == http.StateIdle { // its answer is out
				held.guest.hold(false)
			}
		},
	}
}

type connKey struct{}

// withoutBody reads a request's body, within a time: net/http would wait for it
// without one before it writes the answer.
func withoutBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			control := http.NewResponseController(w)
			_ = control.SetReadDeadline(time.Now().Add(headTimeout))
			if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
				http.Error(w, "no request to this port has a body", http.StatusRequestEntityTooLarge)
				return
			}
			_ = control.SetReadDeadline(time.Time{})
		}
		h.ServeHTTP(w, r)
	})
}

// Limit bounds how many connections of a listener are open at once.
func Limit(ln net.Listener) net.Listener {
	return &listener{Listener: ln, open: newCrowd(maxConnections)}
}

type listener struct {
	net.Listener
	open *crowd
}

// Accept is net.Listener's.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if t, ok := c.(*net.TCPConn); ok {
		_, _ = t.SetWriteBuffer(sendBuffer), t.SetReadBuffer(receiveBuffer)
	}
	held := &conn{Conn: c}
	held.guest = l.open.admit(c.RemoteAddr().String(), func() { _ = c.Close() })
	return held, nil
}

// conn is one of a listener with a limit.
type conn struct {
	net.Conn
	guest *guest
}

// Close is net.Conn's.
func (c *conn) Close() error {
	c.guest.leave()
	return c.Conn.Close()
}

// Hold keeps the connection of a request that waits, as a preStop hook's does, for
// as long as it takes: until its answer is out, it is not ended for another one. The
// answer has its time from release on. Only requests of peers that are trusted may hold.
func Hold(w http.ResponseWriter, r *http.Request) (release func()) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.guest.hold(true)
	}
	return func() { _ = control.SetWriteDeadline(time.Now().Add(WriteTime)) }
}

// lastChunk is how long End waits for the last chunks of answers.
const lastChunk = 20 * time.Millisecond

// End closes a server whose handlers have returned. net/http writes an answer's last chunk after the handler, so End waits
// for that, but not for long: a connection without a request would block Shutdown.
func End(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), lastChunk)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
}
