package advise

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/lastcall-dev/lastcall/kube/losses"
)

// Query reads the observers' histograms of a workload from Prometheus: see losses.Histogram. Within a bucket, its upper
// bound counts.
func Query(ctx context.Context, client *http.Client, base *url.URL, span time.Duration, namespace, workload string) (*Evidence, error) {
	var both [2][]losses.Bucket
	for i, name := range []string{losses.Tail, losses.Lateness} {
		var err error
		if both[i], err = losses.Histogram(ctx, client, base, span, name, namespace, workload); err != nil {
			return nil, err
		}
	}
	if both[0] == nil {
		return nil, fmt.Errorf("no %s of %s in Prometheus within the last %g hours: must be kind/name of a workload of which a pod has ended under an observer", losses.Tail, workload, span.Hours())
	}
	e := new(Evidence)
	tails, err := Histogram(e.buckets(both[0], "time until no request was in flight"))
	if err != nil {
		return nil, err
	}
	e.Tails, e.Source = tails, fmt.Sprintf("%d terminations of %s", tails.Count(), workload)
	if both[1] != nil {
		lateness, err := Histogram(e.buckets(both[1], "last new connection"))
		if err != nil {
			return nil, err
		}
		e.Propagation = lateness.Longest()
	}
	totals, err := losses.Query(ctx, client, base, span, namespace)
	if err != nil {
		return nil, err
	}
	unclear := 0
	for _, w := range totals.Workloads() {
		if w.Name == workload {
			unclear += min(w.Terminations, w.Unknown+w.Killed+w.Lost.Total())
		}
	}
	e.judge(unclear)
	return e, nil
}

// buckets are those of a histogram: the open last one gets the bound before it, and a doubt if it is not empty. Counts of increase()
// are estimates, made ascending here.
func (e *Evidence) buckets(all []losses.Bucket, what string) []Bucket {
	var out []Bucket
	for _, b := range all {
		last := Bucket{}
		if len(out) > 0 {
			last = out[len(out)-1]
		}
		if b.UpTo == math.MaxInt64 {
			b.UpTo = last.UpTo
			if b.Count > last.Count {
				e.doubt("%d terminations had their %s after more than %v", b.Count-last.Count, what, last.UpTo)
			}
		}
		out = append(out, Bucket{UpTo: b.UpTo, Count: max(b.Count, last.Count)})
	}
	return out
}
