package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// Protocol is the protocol of requests to endpoints. Neither uses TLS.
type Protocol int

const (
	// HTTP1 is HTTP/1.1.
	HTTP1 Protocol = iota

	// H2C is HTTP/2 with prior knowledge (RFC 9113, 3.3), which gRPC needs.
	H2C
)

var protocolNames = [...]string{"http1", "h2c"}

func (p Protocol) String() string { return protocolNames[p] }

// ParseProtocol parses the name of a protocol.
func ParseProtocol(name string) (Protocol, error) {
	i := slices.Index(protocolNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("protocol %q: must be %s", name, strings.Join(protocolNames[:], " or "))
	}
	return Protocol(i), nil
}

// endpoint is one address with the connections to it. It has Transports of its own, so that its idle connections can be
// closed without those of other endpoints.
type endpoint struct {
	addr     string
	protocol Protocol
	http1    *http.Transport // with H2C only for upgrades, which HTTP/2 lacks
	h2c      *h2cConns       // nil with HTTP1
	open     quota           // of connections, either protocol's
	removed  atomic.Bool
}

// connectError means that no connection was made and nothing was sent.
type connectError struct {
	addr string
	err  error
}

func (e *connectError) Error() string {
	return fmt.Sprintf("connect to endpoint %s: %v", e.addr, e.err)
}
func (e *connectError) Unwrap() error { return e.err }

// reason returns Envoy's name of the failure, and its description of the system's error.
func (e *connectError) reason() (reason, failure string) {
	var errno syscall.Errno
	var netErr net.Error
	switch {
	case errors.As(e.err, &errno):
		text := errno.Error()
		failure = "delayed connect error: " + strings.ToUpper(text[:1]) + text[1:]
		switch errno {
		case syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS:
			return accesslog.ReasonLocalConnectFailed, failure
		}
	case errors.As(e.err, &netErr) && netErr.Timeout():
		return accesslog.ReasonConnectTimeout, ""
	case errors.Is(e.err, errOverflow):
		return accesslog.ReasonOverflow, ""
	}
	return accesslog.ReasonConnectFailed, failure
}

func newEndpoint(addr string, protocol Protocol, o Options) *endpoint {
	ep := &endpoint{addr: addr, protocol: protocol, open: quota{most: int64(o.MaxPerEndpoint)}}
	ep.http1 = newTransport(addr, HTTP1, o, &ep.open)
	if protocol == H2C {
		ep.h2c = &h2cConns{addr: addr, transport: newTransport(addr, H2C, o, &ep.open), timeout: o.ConnectTimeout, removed: &ep.removed}
	}
	return ep
}

func newTransport(addr string, protocol Protocol, o Options, open *quota) *http.Transport {
	dialer := &net.Dialer{Timeout: o.ConnectTimeout}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(protocol == HTTP1)
	protocols.SetUnencryptedHTTP2(protocol == H2C)
	return &http.Transport{
		Protocols: protocols,
		// The address does not depend on the request's Host.
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := open.dial(ctx, dialer, addr)
			if err != nil {
				return nil, &connectError{addr: addr, err: err}
			}
			if protocol == H2C { // its errors show what may be sent again: see h2cErrorOf
				return newH2CConn(ctx, c), nil
			}
			return newConn(c), nil
		},
		DisableCompression:     true, // the client negotiates compression with the endpoint
		MaxIdleConns:           0,    // no limit besides the next
		MaxIdleConnsPerHost:    o.MaxIdlePerEndpoint,
		MaxResponseHeaderBytes: maxHead,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: responseBuffer},
		IdleConnTimeout:        defaultUpstreamIdleTimeout,
		ExpectContinueTimeout:  defaultExpectContinue,
		WriteBufferSize:        4 << 10, // bodies bypass both buffers
		ReadBufferSize:         8 << 10, // limits a response's trailers
	}
}

// speaks returns the protocol of a request. Upgrades, such as to WebSocket, need HTTP/1.1.
func (ep *endpoint) speaks(req *http.Request) Protocol {
	if ep.protocol == H2C && req.Header.Get("Upgrade") != "" {
		return HTTP1
	}
	return ep.protocol
}

// send sends a request. If alone is set, an HTTP/2 request is the first of a new connection.
func (ep *endpoint) send(req *http.Request, alone bool) (*http.Response, error) {
	switch {
	case ep.speaks(req) == HTTP1:
		return ep.http1.RoundTrip(req)
	case alone:
		return ep.h2c.roundTripAlone(req)
	}
	return ep.h2c.RoundTrip(req)
}

func (ep *endpoint) closeIdle() {
	ep.http1.CloseIdleConnections()
	if ep.h2c != nil {
		ep.h2c.CloseIdleConnections()
	}
}

// remove closes the idle connections. Requests in flight continue.
func (ep *endpoint) remove() {
	ep.removed.Store(true)
	ep.closeIdle()
}

// release is called when a request to ep has ended. A Transport keeps idle connections again as soon as it gets a
// request, such as one that was on its way when the endpoint was removed.
func (ep *endpoint) release() {
	if ep.removed.Load() {
		ep.closeIdle()
	}
}
