package losses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

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
func Query(ctx context.Context, client *http.Client, base *url.URL, span time.Duration, namespace string) (*Totals, error) {
	q := querier{client: client, base: base}
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
		add   func(w *Workload, labels map[string]string, value float64)
	}{
		{increase("lastcall_terminations_total", by+", verdict"), func(w *Workload, labels map[string]string, v float64) {
			n := round(v)
			w.Terminations += n
			switch labels["verdict"] {
			case Unclear:
				w.Unclear += n
			case Unknown:
				w.Unknown += n
			}
		}},
		{increase("lastcall_termination_requests_lost_total", by+", reason"), func(w *Workload, labels map[string]string, v float64) {
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
		{increase("lastcall_termination_requests_perhaps_lost_total", by), func(w *Workload, _ map[string]string, v float64) { w.Perhaps += round(v) }},
		{increase("lastcall_termination_deadline_missed_total", by), func(w *Workload, _ map[string]string, v float64) { w.Killed += round(v) }},
		{increase("lastcall_termination_duration_seconds_sum", by), func(w *Workload, _ map[string]string, v float64) { w.Seconds += v }},
		{increase("lastcall_termination_idle_seconds_sum", by), func(w *Workload, _ map[string]string, v float64) { w.Idle += v }},
		{highest("lastcall_termination_lateness_seconds"), func(w *Workload, _ map[string]string, v float64) { w.Lateness = max(w.Lateness, v) }},
		{highest("lastcall_termination_duration_seconds"), func(w *Workload, _ map[string]string, v float64) { w.Longest = max(w.Longest, v) }},
	} {
		series, err := q.instant(ctx, one.query)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			if v, ok := s.number(); ok {
				one.add(t.of(key{s.Metric["namespace"], s.Metric["workload"], s.Metric["proxy"]}), s.Metric, v)
			}
		}
	}
	return t, nil
}

func round(v float64) int { return int(math.Round(v)) }

type querier struct {
	client *http.Client
	base   *url.URL
}

// series is one of a vector.
type series struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // time, and the number as text
}

// number is the value; false for one that no sum of an observer has. A quantile of nothing is not a number.
func (s *series) number() (float64, bool) {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	return v, err == nil && v >= 0 && v <= 1e15
}

// instant makes one query of Prometheus' HTTP API (/api/v1/query).
func (q *querier) instant(ctx context.Context, query string) ([]series, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	at := q.base.JoinPath("api", "v1", "query")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, at.String(), strings.NewReader(url.Values{"query": {query}}.Encode()))
	if err != nil {
		return nil, fmt.Errorf("query Prometheus: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := q.client.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("query Prometheus at %s: no response within %v", at.Redacted(), queryTimeout)
	}
	if err != nil {
		return nil, fmt.Errorf("query Prometheus: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("query Prometheus at %s: read the answer: %w", at.Redacted(), err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("query Prometheus at %s: the answer is longer than %d MiB: choose one namespace", at.Redacted(), maxAnswer>>20)
	}
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Type   string          `json:"resultType"`
			Result json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("query Prometheus at %s: status %s, but the answer is not JSON: is this the URL of Prometheus?", at.Redacted(), response.Status)
	}
	if answer.Status != "success" || answer.Data.Type != "vector" {
		return nil, fmt.Errorf("query Prometheus at %s: %w", at.Redacted(), errors.New(orStatus(answer.Error, response.Status)))
	}
	var all []series
	if err := json.Unmarshal(answer.Data.Result, &all); err != nil {
		return nil, fmt.Errorf("query Prometheus at %s: %w", at.Redacted(), err)
	}
	if len(all) > maxSeries {
		return nil, fmt.Errorf("query Prometheus at %s: %d series: choose one namespace", at.Redacted(), len(all))
	}
	return all, nil
}

func orStatus(text, status string) string {
	if text == "" {
		return "status " + status
	}
	return text
}
