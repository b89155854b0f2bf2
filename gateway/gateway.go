package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
)

// Gateway passes requests on. It is an http.Handler; Run serves it.
type Gateway struct {
	options Options
	log     *slog.Logger
	access  *accessLog
	proxy   *httputil.ReverseProxy
	metrics *metrics
	routes  atomic.Pointer[Routes]

	certificates atomic.Pointer[Certificates] // of the https listener; nil before Run and without one
}

// New checks the options. It starts nothing, and leads nowhere before SetRoutes.
func New(o Options) (*Gateway, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g := &Gateway{
		options: o,
		log:     o.Log,
		access:  &accessLog{w: o.AccessLog, log: o.Log},
		metrics: newMetrics(o.Metrics...),
	}
	g.routes.Store(&Routes{})
	g.proxy = &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { rewrite(p, o.TrustedHops > 0) },
		Transport:     roundTripper{},
		FlushInterval: -1, // what comes is passed on at once
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		ModifyResponse: func(resp *http.Response) error {
			x := exchangeOf(resp.Request.Context())
			if n := countFields(resp.Header); n > maxFields {
				return fmt.Errorf("%w: %d of %d", errTooManyFields, n, maxFields)
			}
			if resp.StatusCode != http.StatusSwitchingProtocols {
				x.whole = resp.ContentLength == 0 && len(resp.Trailer) == 0
				x.followGRPC(resp)
				dropTrailers(resp.Trailer)
				resp.Body = &responseBody{resp.Body, x, resp}
				if len(resp.Trailer) > 0 && x.request.ProtoMajor == 1 && x.request.Method != http.MethodHead {
					// HTTP/2 has both; in HTTP/1.1 trailers need chunks (RFC 9112, 7.1.2).
					resp.Header.Del("Content-Length")
				}
			} else if x.timer != nil {
				x.timer.Stop()
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			x := exchangeOf(r.Context())
			g.answer(x, replyTo(r.Context(), x, err), err)
		},
	}
	return g, nil
}

// SetRoutes replaces the routes. A request that has found its way already keeps to it.
func (g *Gateway) SetRoutes(t *Routes) { g.routes.Store(t) }

// Lookup is the route of a request for path (decoded) at host (with or without a port); nil
// when there is none.
func (g *Gateway) Lookup(host, path string) *Route { return g.routes.Load().match(host, path) }

// Reloaded counts a change of routes, endpoints or certificates, or one that could not be
// made.
func (g *Gateway) Reloaded(of string, err error) { g.metrics.reload(of, err) }

// ServeHTTP passes a request on and returns when it has ended and its
// access-log line is written.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	x := &exchange{ResponseWriter: w, request: r, begin: time.Now(), serviceTime: -1}
	x.flight.cancel = cancel
	x.allReceived.Store(r.ContentLength == 0)
	if g.options.RequestTimeout > 0 {
		x.timer = time.AfterFunc(g.options.RequestTimeout, func() { cancel(errRequestTimeout) })
		defer x.timer.Stop()
	}
	defer func() {
		x.settle(ctx)
		g.access.write(x, time.Now())
		g.metrics.request(x.routeName(), x.status)
		for _, ep := range append(x.tried, x.endpoint) {
			if ep != nil {
				ep.release()
			}
		}
	}()
	r.Host = authority(r)
	if refusal, ok := g.refusal(r); ok {
		g.answer(x, refusal, nil)
		return
	}
	if x.route = g.Lookup(r.Host, r.URL.Path); x.route == nil || r.Method == http.MethodConnect {
		g.answer(x, reply{status: http.StatusNotFound, outcome: accesslog.NoRoute}, nil)
		return
	}
	in := r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	in.Body = &requestBody{ReadCloser: r.Body, x: x}
	if r.ProtoMajor == 2 {
		// What is sent to an endpoint by HTTP/2 may wait for the client's next words, and
		// does not look at the context then.
		defer context.AfterFunc(ctx, func() { _ = in.Body.Close() })()
	}
	g.proxy.ServeHTTP(x, in)
}

// rewrite takes back what ReverseProxy changes for the sake of a Rewrite, removes what a client must not
// say, and adds two fields. trusted: the gateway's clients are proxies.
func rewrite(p *httputil.ProxyRequest, trusted bool) {
	p.Out.URL.RawQuery = p.In.URL.RawQuery // it is not for the gateway to judge queries
	cleanRequest(p.Out.Header, trusted)
	if trusted {
		for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if v, ok := p.In.Header[name]; ok {
				p.Out.Header[name] = v
			}
		}
	}
	// What an endpoint would make of it could not be looked at: other paths and hosts than
	// the routes allow. A server need not take the offer (RFC 9110, 7.8).
	if strings.EqualFold(p.Out.Header.Get("Upgrade"), "h2c") {
		for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			p.Out.Header.Del(name)
		}
	}
	p.Out.Trailer = trailerOf(p.In)
	p.Out.Header.Set("X-Forwarded-For", forwardedFor(p.In))
	proto := "http"
	if p.In.TLS != nil {
		proto = "https"
	}
	if p.Out.Header.Get("X-Forwarded-Proto") == "" {
		p.Out.Header.Set("X-Forwarded-Proto", proto)
	}
}

// forwardedFor is what came in X-Forwarded-For, and the client.
func forwardedFor(r *http.Request) string {
	list := r.Header.Values("X-Forwarded-For")
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		list = append(list[:len(list):len(list)], ip)
	}
	return strings.Join(list, ",") // as Envoy, without a space
}

// trailerOf is the map that a request's trailers are found in once its body has
// been read. ReverseProxy would send a copy made before that, which is empty.
func trailerOf(in *http.Request) http.Header {
	if in.ContentLength >= 0 {
		return nil
	}
	x := exchangeOf(in.Context())
	x.trailer = http.Header{} // trailers need not be announced
	copyTrailers(x.trailer, in.Trailer)
	return x.trailer
}

// buffers are for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 16 << 10 // a slow client holds one

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
