package httpbin

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"
)

// OnTerm is what the app does when it is told to stop.
type OnTerm string

const (
	// Exit is what most programs without a signal handler do: the process dies
	// of the signal, with whatever was in flight. A process that is PID 1 of its
	// namespace exits with status 2 instead: the kernel does not let it die of a
	// signal, and Go's runtime then leaves that way.
	Exit OnTerm = "exit"

	// CloseListener is nginx's way (its worker at SIGQUIT, the whole at `nginx
	// -s quit`): the listening socket is closed at once, idle connections too,
	// what is in flight is finished with `Connection: close`, and the process
	// leaves, with status 0, the moment its last connection is gone.
	CloseListener OnTerm = "close-listener"

	// Drain is http.Server.Shutdown, Go's own way. It closes the listening socket
	// as well and finishes what is in flight, but it looks for the last connection
	// by a poll (up to half a second late), and waits for connections that
	// never asked anything for up to five seconds.
	Drain OnTerm = "drain"
)

// ParseOnTerm reads the value of a flag.
func ParseOnTerm(s string) (OnTerm, error) {
	switch o := OnTerm(s); o {
	case Exit, CloseListener, Drain:
		return o, nil
	}
	return "", fmt.Errorf("behaviour at SIGTERM is %q: must be %s, %s or %s", s, Exit, CloseListener, Drain)
}

// NotifyContext gives the context that Run is to be called with in a process
// of its own: it ends at SIGTERM or SIGINT. With Exit it installs nothing, so
// that the process dies as one without a handler does.
func NotifyContext(parent context.Context, onTerm OnTerm) (context.Context, context.CancelFunc) {
	if onTerm == Exit {
		return context.WithCancel(parent)
	}
	return signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
}
