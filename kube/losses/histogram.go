package losses

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bucket is one of a cumulative histogram: Count terminations had no more than UpTo.
type Bucket struct {
	UpTo  time.Duration // math.MaxInt64 in the last one
	Count uint64
}

// The histograms of the observers. Both are of terminations.
const (
	Lateness = "lastcall_termination_lateness_seconds" // until the last new connection
	Tail     = "lastcall_termination_tail_seconds"     // from that, or the beginning, until no request was in flight
)

// Histogram reads one workload's buckets of a histogram from Prometheus, in ascending order; none if there was no
// termination. workload is kind/name in lower case; an empty namespace is any. See Query for base and span.
func Histogram(ctx context.Context, client *http.Client, base *url.URL, span time.Duration, histogram, namespace, workload string) ([]Bucket, error) {
	q := querier{client: client, base: base}
	labels := []string{"workload=" + strconv.Quote(workload)}
	if namespace != "" {
		labels = append(labels, "namespace="+strconv.Quote(namespace))
	}
	series, err := q.instant(ctx, fmt.Sprintf("sum by (le) (increase(%s_bucket{%s}[%ds]))", histogram, strings.Join(labels, ", "), int(span.Seconds())))
	if err != nil {
		return nil, err
	}
	var all []Bucket
	for _, s := range series {
		count, ok := s.number()
		upTo, err := strconv.ParseFloat(s.Metric["le"], 64)
		if !ok || err != nil || math.IsNaN(upTo) {
			continue
		}
		b := Bucket{math.MaxInt64, uint64(math.Round(count))}
		if upTo = max(0, upTo); upTo < 1e9 {
			b.UpTo = time.Duration(upTo * float64(time.Second))
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Bucket) int { return cmp.Compare(a.UpTo, b.UpTo) })
	if len(all) == 0 || all[len(all)-1].Count == 0 {
		return nil, nil
	}
	return all, nil
}
