package agent

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/lastcall-dev/lastcall/internal/logs"
	"github.com/lastcall-dev/lastcall/internal/sideport"
	"github.com/lastcall-dev/lastcall/internal/tcp"
)

// merge answers a scrape with the metrics of the agent, of the proxy and of the
// app, in this order, as Istio's agent does: one scrape for the pod.
//
// The exposition format does not allow a metric twice. The agent's own have
// names of their own (lastcall_…); what the proxy and the app say is passed on as
// it is, as it comes: what a scrape takes does not depend on how much they say.
type merge struct {
	own    prometheus.Gatherer
	proxy  func(context.Context) (io.ReadCloser, error) // nil: it has none of its own
	app    string                                       // URL; empty: none
	lean   bool                                         // leave out what only a drain needs
	failed *prometheus.CounterVec
	log    *slog.Logger

	throttle logs.Throttle
}

// scrapeTimeout is how long proxy and app may take to begin; Prometheus gives a whole
// scrape 10 s by default and says so in a header.
const scrapeTimeout = 5 * time.Second

// headStart is how much of a part is read before the answer begins, bytes. A part that
// is shorter is left out when it fails, and so the rest is not lost. Of a longer one
// that fails, the beginning has been passed on: the whole answer is broken off, so that
// no half of it is taken for all.
const headStart = 128 << 10

// maxMetricLine bounds a line, bytes.
const maxMetricLine = 64 << 10

func (m *merge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	late := time.AfterFunc(timeoutOf(r), cancel)
	var parts []<-chan *part
	if m.proxy != nil {
		parts = append(parts, m.fetch(ctx, "proxy", m.proxy))
	}
	if m.app != "" {
		parts = append(parts, m.fetch(ctx, "app", m.scrapeApp))
	}
	var rest []*part
	for _, p := range parts { // before our own, so that a failure is counted in this scrape
		if p := <-p; p != nil {
			defer p.body.Close()
			rest = append(rest, p)
		}
	}
	late.Stop()
	families, err := m.own.Gather()
	if err != nil {
		m.throttle.Warn(m.log, time.Minute, "some of the agent's metrics could not be gathered", "error", err)
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	var out io.Writer = w
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		defer zip.Close()
		out = zip
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(out, family); err != nil {
			return // the scraper has gone
		}
	}
	for _, p := range rest {
		if err := m.copy(out, p); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// timeoutOf is a little less than what the scraper grants.
func timeoutOf(r *http.Request) time.Duration {
	granted := sideport.ScrapeTimeout(r)
	if granted == 0 {
		return scrapeTimeout
	}
	return min(scrapeTimeout, granted*8/10)
}

// part is what one target has to say, from its beginning.
type part struct {
	of   string
	text *bufio.Reader
	body io.Closer
}

// fetch begins one part while the others begin. It is nil when its target fails, which
// is counted and logged; the rest of the scrape is worth having.
func (m *merge) fetch(ctx context.Context, of string, get func(context.Context) (io.ReadCloser, error)) <-chan *part {
	out := make(chan *part, 1)
	go func() {
		body, err := get(ctx)
		if err == nil {
			p := &part{of, bufio.NewReaderSize(body, headStart), body}
			if _, err = p.text.Peek(headStart); err == nil || err == io.EOF {
				out <- p
				return
			}
			_ = body.Close()
		}
		m.fail(of, err)
		out <- nil
	}()
	return out
}

func (m *merge) fail(of string, err error) {
	m.failed.WithLabelValues(of).Inc()
	m.throttle.Warn(m.log, time.Minute, "metrics are left out of the scrape", "of", of, "error", err)
}

// appTransport finds an app on loopback in every pod.
var appTransport = &http.Transport{DialContext: tcp.DialLoopback, IdleConnTimeout: time.Minute}

func (m *merge) scrapeApp(ctx context.Context) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.app, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/plain;version=0.0.4")
	resp, err := appTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, errors.New("GET " + m.app + ": " + resp.Status)
	}
	return resp.Body, nil
}

// drainOnly are Envoy's gauges that are let through for the drain's sake.
var drainOnly = regexp.MustCompile(`^(?:# (?:TYPE|HELP) )?envoy_(?:[a-z_]+_)?downstream_(?:cx|rq|cx_upgrades)_active\b`)

// copy passes a part on, made fit to stand among others: it ends in a newline, and not
// with OpenMetrics' end of everything.
func (m *merge) copy(out io.Writer, p *part) error {
	lines := bufio.NewScanner(p.text)
	lines.Buffer(make([]byte, 0, 4096), maxMetricLine)
	for lines.Scan() {
		line := lines.Bytes()
		if string(line) == "# EOF" || m.lean && drainOnly.Match(line) {
			continue
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	err := lines.Err()
	if err != nil {
		m.fail(p.of, err)
	}
	return err
}
