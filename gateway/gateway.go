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

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// Gateway is an http.Handler that forwards requests to endpoints. Run serves it.
type Gateway struct {
	options Options
	log     *slog.Logger
	access  *accessLog
	proxy   *httputil.ReverseProxy
	metrics *metrics
	routes  atomic.Pointer[Routes]

	certificates atomic.Pointer[Certificates] // of the HTTPS listener; nil before Run, and without such a listener
}

// New makes a Gateway without routes, which SetRoutes sets. It starts nothing.
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
		FlushInterval: -1, // no buffering
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
					// In HTTP/1.1, unlike HTTP/2, trailers need chunks (RFC 9112, 7.1.2).
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

// SetRoutes replaces the routes. Requests that have a route already keep it.
func (g *Gateway) SetRoutes(t *Routes) { g.routes.Store(t) }

// Lookup returns the route for path (decoded) at host (with or without a port), or nil.
func (g *Gateway) Lookup(host, path string) *Route { return g.routes.Load().match(host, path) }

// Reloaded counts a change of routes, endpoints or certificates that was applied, or that failed with err.
func (g *Gateway) Reloaded(of string, err error) { g.metrics.reload(of, err) }

// ServeHTTP forwards a request, and returns when it has ended and its access log line is written.
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
		// Sending a body over HTTP/2 may block in a read from the client, which does not watch the context.
		defer context.AfterFunc(ctx, func() { _ = in.Body.Close() })()
	}
	g.proxy.ServeHTTP(x, in)
}

// rewrite restores what ReverseProxy removes for a Rewrite, removes the fields that a client must not set, and sets
// X-Forwarded-For and X-Forwarded-Proto. trusted is set if the gateway's clients are proxies.
func rewrite(p *httputil.ProxyRequest, trusted bool) {
	p.Out.URL.RawQuery = p.In.URL.RawQuery // ReverseProxy drops what it cannot parse; endpoints may parse it
	cleanRequest(p.Out.Header, trusted)
	if trusted {
		for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if v, ok := p.In.Header[name]; ok {
				p.Out.Header[name] = v
			}
		}
	}
	// After an upgrade to h2c the gateway could not check requests against its routes. A server may ignore the offer
	// (RFC 9110, 7.8).
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

// forwardedFor returns X-Forwarded-For with the client appended.
func forwardedFor(r *http.Request) string {
	list := r.Header.Values("X-Forwarded-For")
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		list = append(list[:len(list):len(list)], ip)
	}
	return strings.Join(list, ",") // as Envoy, without a space
}

// trailerOf returns the map that receives the request's trailers when its body has been read. ReverseProxy would send a
// copy made before that, which is empty.
func trailerOf(in *http.Request) http.Header {
	if in.ContentLength >= 0 {
		return nil
	}
	x := exchangeOf(in.Context())
	x.trailer = http.Header{} // trailers need not be announced
	copyTrailers(x.trailer, in.Trailer)
	return x.trailer
}

// buffers is a pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 16 << 10 // each slow client occupies one

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
