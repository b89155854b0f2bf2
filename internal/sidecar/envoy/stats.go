package envoy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Stats are counters and gauges by name.
type Stats map[string]int64

// ParseStats parses the `name: value` lines of /stats as text. Other lines, and those without a number (histograms,
// text), are skipped. A gauge below zero, an accounting error of Envoy's, shows as a number near 2^64: it is parsed as
// the negative number.
func ParseStats(body []byte) Stats {
	out := make(Stats)
	for line := range bytes.Lines(body) {
		i := bytes.LastIndex(line, []byte(": "))
		if i < 0 {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(line[i+2:])), 10, 64)
		if err != nil {
			continue
		}
		value := int64(n & math.MaxInt64)
		if n > math.MaxInt64 {
			value += math.MinInt64
		}
		out[string(line[:i])] = value
	}
	return out
}

// Metrics are Envoy's own in Prometheus' text format, those that were ever written. In a large mesh they are megabytes,
// so they are streamed.
func (p *Plane) Metrics(ctx context.Context) (io.ReadCloser, error) {
	const path = "/stats/prometheus?usedonly"
	resp, err := p.admin.do(ctx, http.MethodGet, path)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("envoy's admin: GET %s: unexpected status %d", path, resp.StatusCode)
	}
	return resp.Body, nil
}

// istioKnown are the lines of a poll that pilot-agent ignores (pkg/envoy/admin.go): the names are its own.
var istioKnown = regexp.MustCompile(`^listener\.(0\.0\.0\.0_(15021|15090)|admin|admin\.main_thread)\.downstream_cx_active$`)

// istioFilter is the filter of pilot-agent's poll.
const istioFilter = `downstream_cx_active$`

// istioCount counts as pilot-agent does, faults included: a listener with worker_
// in its name is never counted, IPv6's known listeners always are. known is false
// for its "not available": an empty body, or a sum of -1.
func istioCount(body []byte) (active int, known bool) {
	known = len(body) > 0
	for name, value := range ParseStats(body) {
		if strings.HasPrefix(name, "listener.") && !strings.Contains(name, "worker_") &&
			!strings.HasPrefix(name, "listener.envoy_internal_") && !istioKnown.MatchString(name) {
			active += int(value)
		}
	}
	return active, known && active != -1
}
