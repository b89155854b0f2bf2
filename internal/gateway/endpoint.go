package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
)

// endpoint is one address with the connections to it. It has a Transport of its
// own so that its idle connections can be closed without touching others'.
type endpoint struct {
	addr      string
	transport *http.Transport
	removed   atomic.Bool
}

// connectError says that there was never a connection: nothing was sent.
type connectError struct {
	addr string
	err  error
}

func (e *connectError) Error() string {
	return fmt.Sprintf("connect to endpoint %s: %v", e.addr, e.err)
}
func (e *connectError) Unwrap() error { return e.err }

// reason is Envoy's name of the failure, and its words for the system's error.
func (e *connectError) reason() (reason, failure string) {
	var errno syscall.Errno
	var netErr net.Error
	switch {
	case errors.As(e.err, &errno):
		text := errno.Error()
		failure = "delayed connect error: " + strings.ToUpper(text[:1]) + text[1:]
		switch errno {
		case syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS:
			return reasonLocalFailure, failure
		}
	case errors.As(e.err, &netErr) && netErr.Timeout():
		return reasonConnectTimeout, ""
	}
	return reasonRemoteFailure, failure
}

func newEndpoint(addr string, o Options) *endpoint {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout}
	return &endpoint{
		addr: addr,
		transport: &http.Transport{
			// The request's Host says nothing of where it goes.
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				c, err := dialer.DialContext(ctx, "tcp", addr)
				if err != nil {
					return nil, &connectError{addr: addr, err: err}
				}
				return newConn(c), nil
			},
			DisableCompression:    true, // what the client did not ask for is not decoded either
			MaxIdleConns:          0,    // no bound but the next
			MaxIdleConnsPerHost:   o.MaxIdlePerEndpoint,
			IdleConnTimeout:       defaultUpstreamIdleTimeout,
			ExpectContinueTimeout: defaultExpectContinue,
			WriteBufferSize:       16 << 10,
			ReadBufferSize:        16 << 10,
		},
	}
}

// remove closes what is idle. What is in flight goes on.
func (ep *endpoint) remove() {
	ep.removed.Store(true)
	ep.transport.CloseIdleConnections()
}

// release is called when a request to ep has ended. The Transport forgets that
// its idle connections are unwanted as soon as it is asked for one, which a
// request that was on its way at the removal may have done.
func (ep *endpoint) release() {
	if ep.removed.Load() {
		ep.transport.CloseIdleConnections()
	}
}
