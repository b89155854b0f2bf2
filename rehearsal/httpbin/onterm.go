package httpbin

import (
	"context"
	"os/signal"
	"syscall"
)

// OnTerm is the app's behaviour at SIGTERM.
type OnTerm string

const (
	// Exit is the behaviour of programs without a signal handler: the signal ends the process, and the requests in
	// flight. PID 1 of a namespace exits with status 2 instead: the kernel drops signals for it, and Go's runtime
	// exits.
	Exit OnTerm = "exit"

	// CloseListener is the behaviour of nginx (a worker at SIGQUIT, `nginx -s quit`): it closes the listening socket
	// and idle connections at once, finishes the requests in flight with `Connection: close`, and exits with status 0
	// when the last connection is closed.
	CloseListener OnTerm = "close-listener"

	// Drain is http.Server.Shutdown. It closes the listening socket as well and finishes the requests in flight, but
	// polls for the last connection (up to half a second late), and waits up to five seconds for connections without a
	// request.
	Drain OnTerm = "drain"
)

// NotifyContext returns a context for Run that ends at SIGTERM or SIGINT. With Exit it installs no handler, so that the
// signal ends the process.
func NotifyContext(parent context.Context, onTerm OnTerm) (context.Context, context.CancelFunc) {
	if onTerm == Exit {
		return context.WithCancel(parent)
	}
	return signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
}
