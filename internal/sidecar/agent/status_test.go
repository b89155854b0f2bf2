package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/probe"
)

func TestProbes(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	nettest.Serve(t, ln, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/up":
			if r.Host != "shop" || r.Header.Get("X-Probe") != "1" {
				w.WriteHeader(http.StatusBadRequest)
			}
		case "/grpc.health.v1.Health/Check":
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_, _ = w.Write([]byte{0, 0, 0, 0, 2, 8, 1})
			w.Header().Set("Grpc-Status", "0")
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_, closed, _ := net.SplitHostPort(freeAddress(t))

	all, err := probe.ParseAll(strings.NewReplacer("PORT", port, "CLOSED", closed).Replace(`{
		"/app-health/app/readyz": {"httpGet": {"path": "/up", "port": PORT, "httpHeaders": [{"name": "Host", "value": "shop"}, {"name": "X-Probe", "value": "1"}]}},
		"/app-health/app/livez": {"httpGet": {"path": "down", "port": "PORT"}, "timeoutSeconds": 2},
		"/app-health/tcp/livez": {"tcpSocket": {"port": PORT}},
		"/app-health/grpc/livez": {"grpc": {"port": PORT, "service": "shop"}},
		"/app-health/gone/livez": {"tcpSocket": {"port": CLOSED}},
		"/app-health/gone/readyz": {"grpc": {"port": CLOSED}}
	}`))
	must.Do(t, err)
	p := Probes(all)
	for path, want := range map[string]int{
		"/app-health/app/readyz":  200,
		"/app-health/app/livez":   503,
		"/app-health/tcp/livez":   200,
		"/app-health/grpc/livez":  200,
		"/app-health/gone/livez":  500,
		"/app-health/gone/readyz": 500,
		"/app-health/no/livez":    404,
	} {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s; want %d", path, w.Code, w.Body, want)
		}
	}
}

func TestHookToken(t *testing.T) {
	r := start(t, nil, func(o *Options) { o.Status.HookToken = "7f3a" })
	for _, path := range []string{"/wait/7f3b", "/wait/", "/wait/7f3", "/wait/7f3a7"} {
		if code, _ := fetch("GET", r.status+path); code != 404 {
			t.Errorf("%s: %d; want 404", path, code)
		}
	}
	if _, metrics := fetch("GET", r.status+"/metrics"); !strings.Contains(metrics, "lastcall_hook_refused_total 4") {
		t.Errorf("the refusals are not counted:\n%s", metrics)
	}
	if code, body := fetch("GET", r.status+"/wait/7f3a"); code != 200 {
		t.Fatal(code, body)
	}
	close(r.free)
}

func TestProfiles(t *testing.T) {
	off := start(t, nil)
	if code, _ := fetch("GET", off.status+"/debug/pprof/goroutine?debug=2"); code != http.StatusNotFound {
		t.Errorf("without Profiles: %d", code)
	}
	on := start(t, nil, func(o *Options) { o.Status.Profiles = true })
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/debug/pprof/goroutine?debug=2":  {200, "goroutine "},
		"/debug/pprof/heap?debug=1":       {200, "heap profile"},
		"/debug/pprof/heap":               {200, "\x1f\x8b"},
		"/debug/pprof/profile?seconds=1":  {200, "\x1f\x8b"},
		"/debug/pprof/profile?seconds=-1": {400, "seconds must be"},
		"/debug/pprof/nothing":            {404, "must be goroutine"},
		"/debug/pprof/heap?debug=x":       {400, "debug must be"},
	} {
		if code, body := fetch("GET", on.status+path); code != want.code || !strings.HasPrefix(body, want.text) &&
			!strings.Contains(body[:min(len(body), 200)], want.text) {
			t.Errorf("%s: %d, %.100q; want %d, %q", path, code, body, want.code, want.text)
		}
	}
}

func scrape(t *testing.T, m *merge, header ...string) string {
	t.Helper()
	r := httptest.NewRequest("GET", "/stats/prometheus", nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	body := io.Reader(w.Body)
	if w.Header().Get("Content-Encoding") == "gzip" {
		zip, err := gzip.NewReader(body)
		must.Do(t, err)
		body = zip
	}
	b, err := io.ReadAll(body)
	must.Do(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	if _, err := parser.TextToMetricFamilies(strings.NewReader(string(b))); err != nil {
		t.Errorf("not readable: %v\n%s", err, b)
	}
	return string(b)
}

func TestMerge(t *testing.T) {
	const envoy = "# TYPE envoy_http_downstream_rq_active gauge\nenvoy_http_downstream_rq_active{p=\"x\"} 1\n" +
		"# TYPE envoy_listener_downstream_cx_active gauge\nenvoy_listener_downstream_cx_active{} 2\n" +
		"# TYPE envoy_http_downstream_rq_total counter\nenvoy_http_downstream_rq_total{p=\"x\"} 7"
	appSays := "# TYPE go_goroutines gauge\ngo_goroutines 5\n# TYPE orders_total counter\norders_total 3\n# EOF\n"
	appStatus := http.StatusOK
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(appStatus)
		_, _ = io.WriteString(w, appSays)
	}))
	defer app.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	metrics := newMetrics(new(phases))
	m := &merge{
		own: metrics.registry, app: app.URL, failed: metrics.scrapeFailed, log: slog.New(slog.DiscardHandler),
		proxy: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(envoy)), nil },
	}

	all := scrape(t, m)
	at := -1
	for _, want := range []string{"lastcall_drain_phase", "envoy_http_downstream_rq_active",
		"envoy_http_downstream_rq_total", "orders_total 3"} {
		i := strings.Index(all, want)
		if i <= at {
			t.Errorf("%s is missing or out of order:\n%s", want, all)
		}
		at = i
	}
	if strings.Contains(all, "# EOF") {
		t.Error("there is an end in the middle")
	}
	if zipped := scrape(t, m, "Accept-Encoding", "gzip"); !strings.Contains(zipped, "orders_total 3") {
		t.Errorf("zipped: %s", zipped)
	}

	// A part that fails is omitted and counted, and spoils nothing else.
	appStatus = http.StatusInternalServerError
	m.proxy = func(context.Context) (io.ReadCloser, error) { return nil, errors.New("gone") }
	left := scrape(t, m)
	for _, want := range []string{`lastcall_scrape_failures_total{of="app"} 1`,
		`lastcall_scrape_failures_total{of="proxy"} 1`, "lastcall_drain_phase"} {
		if !strings.Contains(left, want) {
			t.Errorf("lacks %s:\n%s", want, left)
		}
	}
}

// A scrape larger than any buffer goes through whole, and one that breaks in the middle
// is broken off: no half looks whole.
func TestMergeOfALargeScrape(t *testing.T) {
	const lines = 100_000
	isBroken := false
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range lines {
			_, _ = fmt.Fprintf(w, "orders_total{customer=\"%d\"} 1\n", i)
			if isBroken && i == lines/2 {
				panic(http.ErrAbortHandler)
			}
		}
	}))
	defer app.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	metrics := newMetrics(new(phases))
	m := &merge{own: metrics.registry, app: app.URL, failed: metrics.scrapeFailed, log: slog.New(slog.DiscardHandler)}
	server := httptest.NewServer(m)
	defer server.Close()
	ask := func() (int, error) {
		resp, err := http.Get(server.URL)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return bytes.Count(b, []byte("orders_total{")), err
	}
	if n, err := ask(); n != lines || err != nil {
		t.Errorf("%d of %d lines, %v", n, lines, err)
	}
	isBroken = true
	if n, err := ask(); err == nil {
		t.Errorf("a scrape of %d of %d lines looks whole", n, lines)
	}
}

func TestMergeDoesNotWaitLongerThanItsScraper(t *testing.T) {
	metrics := newMetrics(new(phases))
	m := &merge{own: metrics.registry, failed: metrics.scrapeFailed, log: slog.New(slog.DiscardHandler),
		proxy: func(ctx context.Context) (io.ReadCloser, error) { <-ctx.Done(); return nil, ctx.Err() }}
	scrape(t, m, "X-Prometheus-Scrape-Timeout-Seconds", "0.05")
}
