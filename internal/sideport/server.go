package sideport

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
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

	// maxConnections is for the probes, hooks and scrapes of a pod: a few at a time.
	maxConnections = 128

	// The kernel's buffers count as the pod's memory, too.
	sendBuffer    = 64 << 10
	receiveBuffer = 16 << 10
)

// New returns a server with limits on everything that peers can make it keep. Its listener has to be wrapped by Limit.
// Hold does not work if ConnState is replaced.
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
				held.slot.hold(false)
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

// Limit bounds the open connections of a listener.
func Limit(ln net.Listener) net.Listener {
	return &listener{Listener: ln, open: newSlots(maxConnections)}
}

type listener struct {
	net.Listener
	open *slots
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
	held.slot = l.open.take(c.RemoteAddr().String(), func() { _ = c.Close() })
	return held, nil
}

// conn is a connection of a listener with a limit.
type conn struct {
	net.Conn
	slot *slot
}

// Close is net.Conn's.
func (c *conn) Close() error {
	c.slot.release()
	return c.Conn.Close()
}

// Hold keeps the connection of a request that waits, as a preStop hook's does, without a deadline: until its response
// has been sent, it is not ended for another one. From release on the response has WriteTime. Only requests of trusted
// peers may hold.
func Hold(w http.ResponseWriter, r *http.Request) (release func()) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{})
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.slot.hold(true)
	}
	return func() { _ = control.SetWriteDeadline(time.Now().Add(WriteTime)) }
}

// answerTime limits how long the end of a server waits for the responses that are due.
const answerTime = 200 * time.Millisecond

// Due is read-locked by each request in progress: the end of a server waits for them, and only for them, while
// http.Server.Shutdown also waits for connections without a request.
type Due struct{ sync.RWMutex }

// Wait waits for the requests in progress, for 200 ms at most. The caller then ends the server, which cancels the
// contexts of the others, and calls rest to wait for these.
func (d *Due) Wait() (rest func()) {
	answered := make(chan struct{})
	go func() { defer close(answered); d.Lock() }()
	select {
	case <-answered:
	case <-time.After(answerTime):
	}
	return func() { <-answered; d.Unlock() }
}

// lastChunk is how long End waits for the last chunks of responses.
const lastChunk = 20 * time.Millisecond

// End closes a server whose handlers have returned. net/http writes a response's last chunk after the handler, so End
// waits for that, but not for long: a connection without a request would block Shutdown.
func End(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), lastChunk)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
	}
}
