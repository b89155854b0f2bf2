package agent

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/lastcall-dev/lastcall/internal/logs"
)

// merge answers a scrape with the metrics of the agent, of the proxy and of the
// app, in this order, as Istio's agent does: one scrape for the pod.
//
// The exposition format does not allow a metric twice. The agent's own have
// names of their own (lastcall_…); what the proxy and the app say is passed on as
// it is.
type merge struct {
	own    prometheus.Gatherer
	proxy  func(context.Context) ([]byte, error) // nil: it has none of its own
	app    string                                // URL; empty: none
	lean   bool                                  // leave out what only a drain needs
	failed *prometheus.CounterVec
	log    *slog.Logger

	throttle logs.Throttle
}

// scrapeTimeout is how long proxy and app may take together; Prometheus gives a
// whole scrape 10 s by default and says so in a header.
const scrapeTimeout = 5 * time.Second

// maxScrape bounds what the app may say, bytes.
const maxScrape = 64 << 20

func (m *merge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), timeoutOf(r))
	defer cancel()
	parts := []<-chan []byte{}
	if m.proxy != nil {
		parts = append(parts, m.fetch(ctx, "proxy", m.proxy))
	}
	if m.app != "" {
		parts = append(parts, m.fetch(ctx, "app", m.scrapeApp))
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		defer zip.Close()
		out = zip
	}
	var rest [][]byte
	for _, part := range parts { // before our own, so that a failure is counted in this scrape
		rest = append(rest, <-part)
	}
	families, err := m.own.Gather()
	if err != nil {
		m.throttle.Warn(m.log, time.Minute, "some of the agent's metrics cannot be had", "error", err)
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(out, family); err != nil {
			return // the scraper has gone
		}
	}
	for _, part := range rest {
		if _, err := out.Write(part); err != nil {
			return
		}
	}
}

// timeoutOf is a little less than what the scraper grants.
func timeoutOf(r *http.Request) time.Duration {
	seconds, err := strconv.ParseFloat(r.Header.Get("X-Prometheus-Scrape-Timeout-Seconds"), 64)
	if err != nil || seconds <= 0 {
		return scrapeTimeout
	}
	return min(scrapeTimeout, time.Duration(seconds*0.8*float64(time.Second)))
}

// fetch gets one part while the others are got. A part that cannot be had is
// empty, counted and told; the rest of the scrape is worth having.
func (m *merge) fetch(ctx context.Context, target string, get func(context.Context) ([]byte, error)) <-chan []byte {
	out := make(chan []byte, 1)
	go func() {
		b, err := get(ctx)
		if err != nil {
			b = nil
			m.failed.WithLabelValues(target).Inc()
			m.throttle.Warn(m.log, time.Minute, "metrics cannot be had and are left out of the scrape", "of", target, "error", err)
		}
		out <- m.clean(b)
	}()
	return out
}

func (m *merge) scrapeApp(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.app, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("GET " + m.app + ": " + resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxScrape+1))
	if err == nil && len(b) > maxScrape {
		err = fmt.Errorf("GET %s: more than %d MiB", m.app, maxScrape>>20)
	}
	return b, err
}

// drainOnly are Envoy's gauges that are let through for the drain's sake.
var drainOnly = regexp.MustCompile(`^(?:# (?:TYPE|HELP) )?envoy_(?:[a-z_]+_)?downstream_(?:cx|rq|cx_upgrades)_active\b`)

// clean makes a part fit to stand among others: it ends in a newline, and not
// with OpenMetrics' end of everything.
func (m *merge) clean(b []byte) []byte {
	if !m.lean && !bytes.Contains(b, []byte("# EOF")) {
		if len(b) > 0 && b[len(b)-1] != '\n' {
			b = append(b, '\n')
		}
		return b
	}
	var out bytes.Buffer
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		line := lines.Bytes()
		if string(line) == "# EOF" || m.lean && drainOnly.Match(line) {
			continue
		}
		out.Write(line)
		out.WriteByte('\n')
	}
	return out.Bytes()
}
