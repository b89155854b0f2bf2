package lastcall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// queue delivers a message at each interval; a message takes a while to be handled.
type queue struct {
	interval, takes     time.Duration
	handled, cut, ended int
}

// consume is a worker's loop. It runs until the worker ends.
func (q *queue) consume(w *Worker) {
	for w.Do(func(job *Job) {
		select {
		case <-time.After(q.interval):
		case <-job.Receiving().Done():
			if errors.Is(context.Cause(job.Receiving()), ErrDraining) {
				q.ended++
			}
			return
		}
		job.SetName("message")
		select {
		case <-time.After(q.takes):
			q.handled++
		case <-job.Context().Done():
			if errors.Is(context.Cause(job.Context()), ErrLastCall) {
				q.cut++
			}
		}
	}) {
	}
}

// A worker ends with the job in progress: it receives nothing after SIGTERM, and waits for no minimum drain.
func TestWorker(t *testing.T) {
	for name, tt := range map[string]struct {
		queue              queue
		signals            []signalAt
		verdict            drain.Verdict
		took               time.Duration // from the last signal
		handled, cut, idle int
		heldBy, open       string
	}{
		"receiving: at once":             {queue: queue{interval: time.Hour}, signals: []signalAt{{10 * s, drain.Terminate}}, verdict: drain.Clean, idle: 1},
		"a job in progress":              {queue: queue{interval: 2 * s, takes: 13 * s}, signals: []signalAt{{10 * s, drain.Terminate}}, verdict: drain.Clean, took: 5 * s, handled: 1, heldBy: "message"},
		"a job that does not end":        {queue: queue{interval: 2 * s, takes: time.Hour}, signals: []signalAt{{10 * s, drain.Terminate}}, verdict: drain.Cut, took: 28 * s, cut: 1, heldBy: "message", open: "message"},
		"a second SIGTERM":               {queue: queue{interval: 2 * s, takes: time.Hour}, signals: []signalAt{{10 * s, drain.Terminate}, {11 * s, drain.Terminate}}, verdict: drain.Cut, cut: 1, open: "message", heldBy: "message"},
		"a hook that is cancelled":       {queue: queue{interval: 15 * s, takes: s}, signals: []signalAt{{10 * s, drain.Hook}, {100 * s, drain.Terminate}}, verdict: drain.Clean, handled: 3, idle: 2},
		"quit":                           {queue: queue{interval: 2 * s, takes: time.Hour}, signals: []signalAt{{10 * s, drain.QuitNow}}, verdict: drain.Quit, cut: 1},
		"a message at the very SIGTERM":  {queue: queue{interval: 10*s - ms, takes: 3 * s}, signals: []signalAt{{10 * s, drain.Terminate}}, verdict: drain.Clean, took: 3*s - ms, handled: 1, heldBy: "message"},
		"SIGTERM just before a message":  {queue: queue{interval: 10*s + ms, takes: 3 * s}, signals: []signalAt{{10 * s, drain.Terminate}}, verdict: drain.Clean, idle: 1},
		"a job that ends just in time":   {queue: queue{interval: 2 * s, takes: 36*s - ms}, signals: []signalAt{{10 * s, drain.Terminate}}, verdict: drain.Clean, took: 28*s - ms, handled: 1, heldBy: "message"},
		"Ctrl-C is SIGTERM for a worker": {queue: queue{interval: 2 * s, takes: 13 * s}, signals: []signalAt{{10 * s, drain.Interrupt}}, verdict: drain.Clean, took: 5 * s, handled: 1, heldBy: "message"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, q := NewWorker("orders"), tt.queue
				consumed := make(chan struct{})
				go func() { defer close(consumed); q.consume(w) }()
				signals := make(chan drain.Signal)
				for _, sig := range tt.signals {
					time.AfterFunc(sig.at, func() { signals <- sig.signal })
				}
				began := time.Now()
				r, err := Run(t.Context(), w, WithSignals(signals), WithLogger(slog.New(slog.DiscardHandler)))
				if took := time.Since(began) - tt.signals[len(tt.signals)-1].at; err != nil || r.Verdict != tt.verdict || took != tt.took {
					t.Errorf("%s after %v, %v; want %s after %v", r.Verdict, took, err, tt.verdict, tt.took)
				}
				<-consumed
				if q.handled != tt.handled || q.cut != tt.cut || q.ended != tt.idle {
					t.Errorf("%d handled, %d cut, %d received nothing; want %d, %d, %d", q.handled, q.cut, q.ended, tt.handled, tt.cut, tt.idle)
				}
				if got := requests(r.HeldBy); got != tt.heldBy {
					t.Errorf("held by %q, want %q", got, tt.heldBy)
				}
				if got := requests(r.Open); got != tt.open {
					t.Errorf("cut %q, want %q", got, tt.open)
				}
				if w.Do(func(*Job) {}) {
					t.Error("a job begins after the end")
				}
			})
		})
	}
}

func requests(list []drain.Conversation) string {
	var out []string
	for _, c := range list {
		if c.Peer != "orders" || c.Protocol != "job" {
			out = append(out, c.Peer+" "+c.Protocol)
		}
		out = append(out, c.Request)
	}
	return strings.Join(out, ", ")
}

// A job that ignores its context does not keep the program from its end within the grace period.
func TestWorkerThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorker("orders")
		go w.Do(func(*Job) { time.Sleep(time.Hour) })
		signals := make(chan drain.Signal)
		time.AfterFunc(10*s, func() { signals <- drain.Terminate })
		r, err := Run(t.Context(), w, WithSignals(signals), WithLogger(slog.New(slog.DiscardHandler)))
		if took := time.Duration(r.Duration); err != nil || r.Verdict != drain.Cut || took <= 28*s || took >= 30*s {
			t.Errorf("%+v, %v", r, err)
		}
		if len(r.Faults) != 1 || !strings.Contains(r.Faults[0], "worker orders has 1 jobs in progress") {
			t.Errorf("faults: %q", r.Faults)
		}
		time.Sleep(time.Hour)
	})
}

// ServeHTTP answers lastcall wait --until: a job without a message is idle, and a long poll ends with the last job.
func TestWorkerReportsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWorker("orders")
		ask := func(prefer string) (string, time.Duration) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/idle", nil)
			r.Header.Set("Prefer", prefer)
			began, answer := time.Now(), httptest.NewRecorder()
			w.ServeHTTP(answer, r)
			return fmt.Sprint(answer.Code, " ", answer.Body), time.Since(began)
		}
		want := func(prefer, text string, after time.Duration) {
			t.Helper()
			if got, took := ask(prefer); got != text || took != after {
				t.Errorf("%q after %v; want %q after %v", got, took, text, after)
			}
		}
		want("wait=10", "200 ", 0)
		waiting, _ := w.Begin()
		_ = waiting.Receiving()
		want("wait=10", "200 ", 0)
		one, _ := w.Begin()
		one.SetName("order 17")
		two, _ := w.Begin()
		_ = two.Context()
		two.End()
		want("", "503 order 17", 0)
		want("wait=10", "503 order 17", 10*s)
		want("wait=100000", "503 order 17", time.Minute)
		time.AfterFunc(3*s, one.End)
		want("wait=10", "200 ", 3*s)
		w.Kill()
	})
}

// End may be called twice, and does not end another job.
func TestJobEndsOnce(t *testing.T) {
	w := NewWorker("orders")
	one, _ := w.Begin()
	_, _ = w.Begin()
	one.End()
	one.End()
	if a, err := w.Activity(t.Context()); err != nil || a.Busy != 1 || a.Arrivals != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if err := w.Close(cancelled()); err == nil {
		t.Error("Close has not waited for the other job")
	}
	w.Kill()
	w.Kill()
	<-w.Exited()
	if err := w.Resume(t.Context()); err == nil {
		t.Error("a worker that has ended has resumed")
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
