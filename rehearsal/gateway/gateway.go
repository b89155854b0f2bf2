// Package gateway is the gateway of a rehearsal: a reverse proxy for HTTP/1.1 whose responses show whether the end of a
// pod cost a client anything. For production there are Envoy Gateway, Contour and Istio's gateways: docs/gateways.md.
//
// It never sends a request twice that a pod may have received: only a refused connection is repeated, with another
// endpoint. net/http's Transport repeats more: a GET on a kept-alive connection that ended before the first byte of the
// response, however long the server had worked on it (shouldRetryRequest in transport.go). Envoy does not do so by
// default, and it would hide what a rehearsal is to show. So it sends with package traffic's client.
//
// Its own responses are Envoy's, and so are the flags in its log:
//
//	503 UH      no healthy upstream                       no endpoints
//	503 URX,UF  … remote connection failure               no endpoint accepted a connection (UF: there was one)
//	503 UC      … connection termination                  the connection ended before the response
//	502 UPE     … protocol error                          the response is not HTTP, or its head is truncated
//
// (… is "upstream connect error or disconnect/reset before headers. reset reason: ", with "retried and the latest" in
// it after a retry.) When the endpoint ends in the middle of a body, the response is truncated, and the flag is UPE. DC
// means that the client closed its connection first.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/rehearsal/traffic"
)

// Gateway is an http.Handler that forwards requests to endpoints.
type Gateway struct {
	log       *slog.Logger
	client    traffic.Client
	endpoints atomic.Pointer[[]string] // replaced, never modified

	// Of Start:
	Address string // where it listens
	logFile string
	stop    func() // nil once it has ended
}

// New makes a Gateway without endpoints. The log gets a line for each request.
func New(log *slog.Logger) *Gateway {
	g := &Gateway{log: log}
	g.endpoints.Store(&[]string{})
	g.client.Targets = func() []string { return *g.endpoints.Load() }
	return g
}

// SetEndpoints replaces the endpoints by addresses, each host:port. An endpoint that leaves gets no new requests, and
// its idle connections are closed; requests in flight continue.
func (g *Gateway) SetEndpoints(addresses []string) {
	list := slices.Clone(addresses)
	g.endpoints.Store(&list)
	g.client.CloseIdle()
	g.log.Info("endpoints changed", "addresses", list)
}

// Start starts a gateway with a list of pods' addresses, and returns when it listens. It creates dir,
// for its logs.
func Start(dir string, endpoints []string) (*Gateway, error) {
	mkdir := os.MkdirAll(dir, 0o755)
	out, err1 := os.Create(filepath.Join(dir, "gateway.log"))
	ln, err2 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(mkdir, err1, err2); err != nil {
		return nil, fmt.Errorf("gateway: %w", err) // the rehearsal ends
	}
	g := New(slog.New(slog.NewTextHandler(out, nil)))
	g.SetEndpoints(endpoints)
	server := &http.Server{Handler: g}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln) // until stop
	}()
	g.Address, g.logFile = ln.Addr().String(), out.Name()
	g.stop = func() {
		ctx, late := context.WithTimeout(context.Background(), stopTimeout)
		defer late()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-served
		g.SetEndpoints(nil) // ends the kept connections
		_ = out.Close()
	}
	return g, nil
}

// stopTimeout is how long a gateway without requests may take to end.
const stopTimeout = 2 * time.Second

// Stop ends the gateway; nil has ended. Its log is complete afterwards.
func (g *Gateway) Stop() {
	if g != nil && g.stop != nil {
		g.stop()
		g.stop = nil
	}
}

// Line returns the log's line for a request of path, or "".
func (g *Gateway) Line(path string) string {
	data, _ := os.ReadFile(g.logFile) // without it there is no line
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, " "+path+" ") {
			return strings.TrimSuffix(line, "\n")
		}
	}
	return ""
}

// ServeHTTP forwards a request, and returns when it has ended and its line is logged.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, gateway: g, request: r}
	defer x.end()
	proxy := httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // adds no header
		Transport:     x,
		FlushInterval: -1, // no buffering
		ErrorLog:      slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		ErrorHandler:  x.fail,
	}
	proxy.ServeHTTP(x, r)
}

// exchange is one request with its response: the proxy's ResponseWriter and its Transport.
type exchange struct {
	http.ResponseWriter
	gateway *Gateway
	request *http.Request // as received

	upstream traffic.Outcome
	broken   error // a read of the response's body
	outcome  accesslog.Outcome
	status   int // 0 until the head is sent
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

// RoundTrip sends the request to an endpoint.
func (x *exchange) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	resp, x.upstream = x.gateway.client.Forward(req, func(err error) { x.broken = err })
	if resp == nil {
		return nil, errors.New(string(x.upstream.Failure))
	}
	return resp, nil
}

// fail responds to a request that got no response from an endpoint.
func (x *exchange) fail(http.ResponseWriter, *http.Request, error) {
	isRetried := x.upstream.Tries > 1
	reset := func(status int, flag, reason string) {
		x.outcome = accesslog.Before(flag, reason)
		x.reply(status, accesslog.ResetBody(reason, isRetried))
	}
	switch x.upstream.Failure {
	case traffic.Stopped: // the client has closed its connection
		panic(http.ErrAbortHandler)
	case traffic.NoPods:
		x.outcome = accesslog.NoHealthy
		x.reply(http.StatusServiceUnavailable, accesslog.BodyNoHealthy)
	case traffic.Refused:
		flag := accesslog.FlagConnectFailed
		if isRetried {
			flag = accesslog.FlagRetriesExhausted
		}
		reset(http.StatusServiceUnavailable, flag, accesslog.ReasonConnectFailed)
	case traffic.Truncated:
		reset(http.StatusBadGateway, accesslog.FlagProtocolError, accesslog.ReasonProtocolError)
	default:
		reset(http.StatusServiceUnavailable, accesslog.FlagTerminated, accesslog.ReasonTerminated)
	}
}

// reply sends a response of the gateway's own, in Envoy's form.
func (x *exchange) reply(status int, body string) {
	h := x.Header()
	clear(h)
	h.Set("Content-Type", "text/plain")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Server", accesslog.Server)
	x.WriteHeader(status)
	_, _ = io.WriteString(x, body)
}

// end logs an exchange that has ended.
func (x *exchange) end() {
	isGone := x.request.Context().Err() != nil
	switch {
	case x.outcome != (accesslog.Outcome{}):
	case isGone && (x.broken != nil || x.status == 0):
		x.outcome = accesslog.ClientClosed
	case x.broken != nil: // for Envoy's parser, an end within a body is a malformed body
		x.outcome = accesslog.Truncated
	default:
		x.outcome = accesslog.ViaUpstream
	}
	x.gateway.log.Info(fmt.Sprintf("%s %s %d %s %s", x.request.Method, x.request.RequestURI, x.status,
		cmp.Or(x.outcome.Flags, "-"), x.outcome.Details), "endpoint", x.upstream.Address)
}
