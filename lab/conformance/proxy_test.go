package conformance

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/lastcall-dev/lastcall"
	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// proxy is a Go program with package lastcall: a reverse proxy that uses HTTP/2 to its endpoint, as gateways do.
type proxy struct {
	url      string
	endpoint atomic.Pointer[url.URL]
	signals  chan drain.Signal
}

func startProxy(t *testing.T, endpoint net.Addr) *proxy {
	t.Helper()
	p := &proxy{signals: make(chan drain.Signal, 4)}
	p.to(endpoint)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	p.serve(t, &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(p.endpoint.Load()) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	})
	return p
}

// serve serves with package lastcall until the test ends, over HTTP/1.1 and HTTP/2 with prior knowledge.
func (p *proxy) serve(t *testing.T, h http.Handler) {
	t.Helper()
	listener := nettest.Listen(t, "127.0.0.1:0")
	p.url = "http://" + listener.Addr().String()
	server := &http.Server{Handler: h, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan error, 1)
	go func() {
		_, err := lastcall.Serve(context.Background(), server, lastcall.WithListener(listener), lastcall.WithSignals(p.signals),
			lastcall.WithMinimumDrain(0), lastcall.WithQuietTime(0), lastcall.WithGracePeriod(patience),
			lastcall.WithLogger(slog.New(slog.DiscardHandler)))
		ended <- err
	}()
	t.Cleanup(func() {
		p.cut()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// cut terminates the proxy by its last call.
func (p *proxy) cut() {
	p.signals <- drain.Hurry
}

// to sends later requests to another endpoint.
func (p *proxy) to(endpoint net.Addr) {
	p.endpoint.Store(&url.URL{Scheme: "http", Host: endpoint.String()})
}
