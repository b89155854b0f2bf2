package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

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
		must(t, err)
		body = zip
	}
	b, err := io.ReadAll(body)
	must(t, err)
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
