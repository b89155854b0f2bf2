package losses

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/lastcall-dev/lastcall/internal/sidecar/observe"
)

// Limits of a query.
const (
	queryTimeout = 30 * time.Second
	maxAnswer    = 32 << 20 // bytes
	maxSeries    = 100000
)

// by are the labels of a workload.
const by = "namespace, workload, proxy"

// Query adds up what Prometheus has kept of the observers' metrics. base is its URL, span the time before now, and
// namespace limits it to one; empty for all. The figures are Prometheus' estimates: increase() extrapolates.
func Query(ctx context.Context, base *url.URL, span time.Duration, namespace string) (*Totals, error) {
	client, err := api.NewClient(api.Config{Address: base.String(), RoundTripper: limited{http.DefaultTransport}})
	if err != nil {
		return nil, fmt.Errorf("query Prometheus at %s: %w", base.Redacted(), err)
	}
	q := querier{api: v1.NewAPI(client), url: base.Redacted()}
	selector := ""
	if namespace != "" {
		selector = "{namespace=" + strconv.Quote(namespace) + "}"
	}
	increase := func(metric, labels string) string {
		return fmt.Sprintf("sum by (%s) (increase(%s%s[%ds]))", labels, metric, selector, int(span.Seconds()))
	}
	highest := func(histogram string) string {
		return "histogram_quantile(1, " + increase(histogram+"_bucket", by+", le") + ")"
	}
	t := new(Totals)
	for _, one := range []struct {
		query string
		add   func(w *Workload, labels model.Metric, value float64)
	}{
		{increase("lastcall_terminations_total", by+", verdict"), func(w *Workload, labels model.Metric, v float64) {
			n := round(v)
			w.Terminations += n
			switch string(labels["verdict"]) {
			case Unclear:
				w.Unclear += n
			case Unknown:
				w.Unknown += n
			}
		}},
		{increase("lastcall_termination_requests_lost_total", by+", reason"), func(w *Workload, labels model.Metric, v float64) {
			switch observe.Reason(labels["reason"]) {
			case ReasonRestart:
				w.Restart += round(v)
			case observe.Reset:
				w.Reset += round(v)
			case observe.Unanswered:
				w.Unanswered += round(v)
			case observe.Refused:
				w.Refused += round(v)
			case observe.Cut:
				w.Cut += round(v)
			}
		}},
		{increase("lastcall_termination_requests_perhaps_lost_total", by), func(w *Workload, _ model.Metric, v float64) { w.Perhaps += round(v) }},
		{increase("lastcall_termination_deadline_missed_total", by), func(w *Workload, _ model.Metric, v float64) { w.Killed += round(v) }},
		{increase("lastcall_termination_duration_seconds_sum", by), func(w *Workload, _ model.Metric, v float64) { w.Seconds += v }},
		{increase("lastcall_termination_idle_seconds_sum", by), func(w *Workload, _ model.Metric, v float64) { w.Idle += v }},
		{highest("lastcall_termination_lateness_seconds"), func(w *Workload, _ model.Metric, v float64) { w.Lateness = max(w.Lateness, v) }},
		{highest("lastcall_termination_duration_seconds"), func(w *Workload, _ model.Metric, v float64) { w.Longest = max(w.Longest, v) }},
	} {
		series, err := q.instant(ctx, one.query)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			if v := float64(s.Value); v >= 0 && v <= 1e15 { // a quantile of nothing is not a number
				one.add(t.of(key{string(s.Metric["namespace"]), string(s.Metric["workload"]), string(s.Metric["proxy"])}), s.Metric, v)
			}
		}
	}
	return t, nil
}

func round(v float64) int { return int(math.Round(v)) }

// querier makes instant queries of Prometheus' HTTP API.
type querier struct {
	api v1.API
	url string // without a password
}

func (q *querier) instant(ctx context.Context, query string) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	value, _, _, err := q.api.Query(ctx, query, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("query Prometheus at %s (at most %v, %d MiB): %w", q.url, queryTimeout, maxAnswer>>20, err)
	}
	all, ok := value.(model.Vector)
	if !ok || len(all) > maxSeries {
		return nil, fmt.Errorf("query Prometheus at %s: the response must be a vector of at most %d series: choose one namespace", q.url, maxSeries)
	}
	return all, nil
}

// limited bounds the bodies of responses, which the API's client reads whole.
type limited struct{ http.RoundTripper }

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxAnswer)
	}
	return response, err
}
