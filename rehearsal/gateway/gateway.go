package gateway

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// Gateway is an http.Handler that forwards requests to endpoints.
type Gateway struct {
	log    *slog.Logger
	access *accesslog.Log // nil: none

	mu        sync.Mutex                  // one change at a time
	endpoints atomic.Pointer[[]*endpoint] // replaced, never modified
	next      atomic.Uint64
}

// New makes a Gateway without endpoints. The access log gets a line for each request, unless it is nil.
func New(log *slog.Logger, access *accesslog.Log) *Gateway {
	g := &Gateway{log: log, access: access}
	g.endpoints.Store(new([]*endpoint))
	return g
}

// ServeHTTP forwards a request, and returns when it has ended and its access log line is written.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	x := &exchange{ResponseWriter: w, gateway: g, request: r, ctx: ctx, cancel: cancel, began: time.Now()}
	defer x.end()
	in := r.WithContext(ctx)
	in.Body = &clientBody{r.Body, x}
	proxy := httputil.ReverseProxy{
		Rewrite:       rewrite,
		Transport:     x,
		FlushInterval: -1, // no buffering
		ErrorLog:      slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
		ErrorHandler:  x.fail,
	}
	proxy.ServeHTTP(x, in)
}

// rewrite appends the client to X-Forwarded-For, and restores the query, of which ReverseProxy removes what it cannot
// parse.
func rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"]
	p.SetXForwarded()
}
