package agent

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// merge answers a scrape with the metrics of the agent, the proxy and the app, in this order, as Istio's agent does:
// one scrape for the pod.
//
// The exposition format does not allow a metric twice: the agent's own are named lastcall_…. Those of the proxy and the
// app are streamed unchanged, so a scrape's memory does not depend on their size.
type merge struct {
	own    prometheus.Gatherer
	proxy  func(context.Context) (io.ReadCloser, error) // nil: no metrics of its own
	app    string                                       // URL; empty: none
	failed *prometheus.CounterVec
	log    *slog.Logger

	throttle logs.Throttle
}

// scrapeTimeout is how long proxy and app may take to begin. Prometheus allows 10 s for a whole scrape by default, and
// sends its limit in a header.
const scrapeTimeout = 5 * time.Second

// headStart is how much of a part is read before the response begins, bytes. A shorter part that fails is omitted and
// the rest is kept. If a longer one fails, its beginning has been sent: the response is aborted, so that a truncated
// scrape is never mistaken for a complete one.
const headStart = 128 << 10

// maxMetricLine bounds a line, bytes.
const maxMetricLine = 64 << 10

func (m *merge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	late := time.AfterFunc(min(scrapeTimeout, cmp.Or(statusserver.ScrapeTimeout(r)*8/10, scrapeTimeout)), cancel)
	var parts []<-chan *part
	if m.proxy != nil {
		parts = append(parts, m.fetch(ctx, "proxy", m.proxy))
	}
	if m.app != "" {
		parts = append(parts, m.fetch(ctx, "app", m.scrapeApp))
	}
	var rest []*part
	for _, p := range parts { // before the agent's own, so that this scrape counts a failure
		if p := <-p; p != nil {
			defer p.body.Close()
			rest = append(rest, p)
		}
	}
	late.Stop()
	families, err := m.own.Gather()
	if err != nil {
		m.throttle.Warn(m.log, time.Minute, "cannot gather some of the agent's metrics", "error", err)
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
			return // the scraper has disconnected
		}
	}
	for _, p := range rest {
		if err := m.copy(out, p); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// part is one target's metrics, from their beginning.
type part struct {
	of   string
	text *bufio.Reader
	body io.Closer
}

// fetch starts to read one part, concurrently with the others. It sends nil when the target fails, which is counted and
// logged; the rest of the scrape is still useful.
func (m *merge) fetch(ctx context.Context, of string, get func(context.Context) (io.ReadCloser, error)) <-chan *part {
	out := make(chan *part, 1)
	go func() {
		body, err := get(ctx)
		if err == nil {
			p := &part{of, bufio.NewReaderSize(body, headStart), body}
			if _, err = p.text.Peek(headStart); err == nil || errors.Is(err, io.EOF) {
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
	m.throttle.Warn(m.log, time.Minute, "metrics omitted from the scrape", "of", of, "error", err)
}

// appTransport connects to an app on loopback in IPv4 and IPv6 pods.
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

// copy appends a part: it ends with a newline, and OpenMetrics' end marker is dropped.
func (m *merge) copy(out io.Writer, p *part) error {
	lines := bufio.NewScanner(p.text)
	lines.Buffer(make([]byte, 0, 4096), maxMetricLine)
	for lines.Scan() {
		line := lines.Bytes()
		if string(line) == "# EOF" {
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
