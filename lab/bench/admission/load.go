package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admission "k8s.io/api/admission/v1"
)

// load sends reviews.
type load struct {
	url     string
	client  *http.Client
	reviews [][]byte
	sent    atomic.Int64
}

// result has the outcome of some reviews.
type result struct {
	mu       sync.Mutex // guards what follows
	times    []time.Duration
	took     time.Duration
	failed   int
	err      error // of the last that failed
	patched  int
	admitted int // as they are
}

func (r *result) percentile(p float64) time.Duration {
	if len(r.times) == 0 {
		return 0
	}
	return r.times[min(len(r.times)-1, int(p*float64(len(r.times))))]
}

func (r *result) String() string {
	slices.Sort(r.times)
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
	return fmt.Sprintf("%.0f | %s | %s | %s | %s | %d", float64(len(r.times))/r.took.Seconds(), ms(r.percentile(.5)), ms(r.percentile(.99)), ms(r.percentile(.999)), ms(r.percentile(1)), r.failed)
}

// cost is processor time, as a share of the elapsed time and for each review.
func (r *result) cost(used time.Duration) string {
	return fmt.Sprintf("%.0f %% | %.2f ms", 100*used.Seconds()/r.took.Seconds(), float64(used)/1e6/float64(max(1, len(r.times))))
}

func (r *result) outcomes() string {
	return fmt.Sprintf("%d with a patch, %d without", r.patched, r.admitted)
}

// one sends the next review, and counts from when it was due.
func (l *load) one(ctx context.Context, due time.Time, r *result) {
	body := l.reviews[int(l.sent.Add(1)-1)%len(l.reviews)]
	patched, err := l.post(ctx, body)
	took := time.Since(due)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.failed, r.err = r.failed+1, err
		return
	case patched:
		r.patched++
	default:
		r.admitted++
	}
	r.times = append(r.times, took)
}

func (l *load) post(ctx context.Context, body []byte) (patched bool, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(request)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	// The answer is not parsed in full: the load's core is not what is measured, but it delays what it waits for.
	if !bytes.Contains(text, []byte(`"allowed":true`)) {
		return false, fmt.Errorf("denied: %s", text)
	}
	return bytes.Contains(text, []byte(`"patch":`)), nil
}

// ready waits until the first review is answered, and looks at that one closely.
func (l *load) ready(ctx context.Context) error {
	for {
		_, err := l.post(ctx, l.reviews[0])
		if err == nil {
			break
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("the webhook does not answer: %w", err)
		}
		time.Sleep(20 * time.Millisecond) // until it listens
	}
	resp, err := l.client.Post(l.url, "application/json", bytes.NewReader(l.reviews[0]))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var review admission.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&review); err != nil || review.Response == nil || resp.ProtoMajor != 2 {
		return fmt.Errorf("the answer is no review over HTTP/2: %s, %w", resp.Proto, err)
	}
	return nil
}

// steady sends rate a second, each when it is due, whether or not the one before has been answered.
func (l *load) steady(ctx context.Context, rate int, d time.Duration) *result {
	r := &result{}
	began := time.Now()
	var sending sync.WaitGroup
	for i := 0; ; i++ {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(rate))
		if due.Sub(began) >= d || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Until(due))
		sending.Go(func() { l.one(ctx, due, r) })
	}
	sending.Wait()
	r.took = time.Since(began)
	return r
}

// most sends the next when the one before has been answered, so many at a time.
func (l *load) most(ctx context.Context, d time.Duration, atOnce int) *result {
	r := &result{}
	began := time.Now()
	var sending sync.WaitGroup
	for range atOnce {
		sending.Go(func() {
			for time.Since(began) < d && ctx.Err() == nil {
				l.one(ctx, time.Now(), r)
			}
		})
	}
	sending.Wait()
	r.took = time.Since(began)
	return r
}

// cpuTime is what a process has used so far.
func cpuTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	var ticks int64 // of user and system time; there are 100 a second on every Linux that Go runs on
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// resident is a process's memory, bytes.
func resident(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}
