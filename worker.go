package lastcall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/phase"
	"github.com/lastcall-dev/lastcall/internal/poll"
)

// Worker is the data plane of a program without inbound connections, such as a queue's consumer: it
// ends when no job is in progress.
//
//	for w.Do(func(job *lastcall.Job) {
//		m, err := queue.Receive(job.Receiving()) // returns when the drain begins
//		if err != nil {
//			return
//		}
//		job.SetName(m.ID)
//		handle(job.Context(), m) // cancelled at the last call, so that m can be returned to the queue
//	}) {
//	}
//
// A job includes the wait for its message: a message that arrives at the moment of SIGTERM is never
// dropped between the queue and its handler.
//
// A job that has used Receiving, and neither Context nor SetName, has received nothing. If such jobs return at once,
// as while the broker fails, Do waits between them: 1 ms, then twice as long each time, up to 100 ms.
type Worker struct {
	name   string
	exited chan struct{}

	mu        phase.State // guards the fields below
	jobs      map[*Job]struct{}
	begun     uint64
	empty     int // jobs in a row that received nothing
	accepting bool
	ended     bool

	receiving, working             context.Context
	cancelReceiving, cancelWorking context.CancelCauseFunc
}

var _ drain.DataPlane = (*Worker)(nil)

// ErrDraining is why Job.Receiving ends, by context.Cause.
var ErrDraining = errors.New("draining: no more jobs are received")

// ErrLastCall is why Job.Context, and the context of an HTTP request, ends, by context.Cause.
var ErrLastCall = drain.ErrLastCall

// NewWorker returns a worker without jobs. The report has its name, such as "orders".
func NewWorker(name string) *Worker {
	w := &Worker{
		name: name, exited: make(chan struct{}),
		jobs: map[*Job]struct{}{}, accepting: true,
	}
	w.receiving, w.cancelReceiving = context.WithCancelCause(context.Background())
	w.working, w.cancelWorking = context.WithCancelCause(context.Background())
	return w
}

// Job is one piece of work. Its methods may be called from several goroutines.
type Job struct {
	w                  *Worker
	began              time.Time
	receiving, working context.Context
	name               string // guarded by w.mu, as are the others
	receives, works    bool   // Receiving, or Context and SetName, has been called
}

// Begin begins a job, which End ends. While the worker is drained Begin waits: it begins a job after
// all if the drain is cancelled, and returns false when the worker has ended.
func (w *Worker) Begin() (*Job, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.mu.Wait(context.Background(), func() bool { return w.accepting || w.ended })
	if w.ended {
		return nil, false
	}
	j := &Job{w: w, began: time.Now(), receiving: w.receiving, working: w.working}
	w.jobs[j] = struct{}{}
	w.begun++
	w.mu.Changed()
	return j, true
}

// Do calls f with a job that it begins and ends. It returns false, without calling f, when the worker has ended.
func (w *Worker) Do(f func(*Job)) bool {
	j, ok := w.Begin()
	if !ok {
		return false
	}
	func() {
		defer j.End()
		f(j)
	}()
	w.pause(j)
	return true
}

const (
	emptyTime    = 10 * time.Millisecond // a job that received nothing in this time has not waited for a message
	longestPause = 100 * time.Millisecond
)

// pause delays the next job after one that received nothing: the loop of a program whose broker fails would use a whole
// core.
func (w *Worker) pause(j *Job) {
	w.mu.Lock()
	if !j.receives || j.works || j.receiving.Err() != nil || time.Since(j.began) >= emptyTime {
		w.empty = 0
		w.mu.Unlock()
		return
	}
	wait := min(time.Millisecond<<min(w.empty, 10), longestPause)
	w.empty++
	w.mu.Unlock()
	_ = poll.Pause(j.receiving, wait)
}

// End ends the job. Only the first call has an effect.
func (j *Job) End() {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	delete(j.w.jobs, j)
	j.w.mu.Changed()
}

// Receiving ends when the drain begins. It is for the call that waits for the job's message.
func (j *Job) Receiving() context.Context {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.receives = true
	return j.receiving
}

// Context ends at the last call, shortly before SIGKILL. It is for the work itself.
func (j *Job) Context() context.Context {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.works = true
	return j.working
}

// SetName sets the name of the job in the report.
func (j *Job) SetName(name string) {
	j.w.mu.Lock()
	defer j.w.mu.Unlock()
	j.name, j.works = name, true
}

// longestAnswer is how long ServeHTTP delays its answer at most.
const longestAnswer = time.Minute

// ServeHTTP reports whether the worker is idle, in the form of lastcall wait --until http://…: 200 if no job has
// received a message, otherwise 503 with the names of those that have, one a line. "Prefer: wait=10" (RFC 7240) delays
// the answer until the worker is idle, 10 s at most. It is for the hook of another container in the pod; register it on
// a server of WithSideServer.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	seconds, _ := strconv.Atoi(strings.TrimPrefix(r.Header.Get("Prefer"), "wait="))
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(seconds)*time.Second, longestAnswer))
	defer cancel()
	w.mu.Lock()
	_ = w.mu.Wait(ctx, func() bool { return len(w.atWork()) == 0 })
	names := slices.Sorted(slices.Values(w.atWork()))
	w.mu.Unlock()
	if len(names) > 0 {
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(rw, strings.Join(names, "\n"))
	}
}

// atWork has the names of the jobs that have received a message; mu is held.
func (w *Worker) atWork() (names []string) {
	for j := range w.jobs {
		if j.works {
			names = append(names, cmp.Or(j.name, w.name))
		}
	}
	return names
}

// Drain is drain.DataPlane's: no more jobs begin, and Receiving ends.
func (w *Worker) Drain(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepting = false
	w.cancelReceiving(ErrDraining)
	w.mu.Changed()
	return nil
}

// Resume implements drain.DataPlane.
func (w *Worker) Resume(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errors.New("the worker has ended")
	}
	if w.receiving.Err() != nil {
		w.receiving, w.cancelReceiving = context.WithCancelCause(context.Background())
	}
	if w.working.Err() != nil {
		w.working, w.cancelWorking = context.WithCancelCause(context.Background())
	}
	w.accepting = true
	w.mu.Changed()
	return nil
}

// Activity implements drain.DataPlane.
func (w *Worker) Activity(context.Context) (drain.Activity, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return drain.Activity{Known: true, Connections: len(w.jobs), Busy: len(w.jobs), Arrivals: w.begun}, nil
}

// Changes implements drain.DataPlane.
func (w *Worker) Changes() <-chan struct{} { return w.mu.Changes() }

// CloseIdle implements drain.DataPlane. A worker has no idle connections.
func (w *Worker) CloseIdle(context.Context, time.Duration) error { return nil }

// StopAccepting implements drain.DataPlane.
func (w *Worker) StopAccepting(ctx context.Context) error { return w.Drain(ctx) }

// Open implements drain.DataPlane.
func (w *Worker) Open(_ context.Context, limit int) ([]drain.Conversation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.conversations("")
	return all[:min(limit, len(all))], nil
}

// conversations are the jobs in progress, the oldest first; mu is held.
func (w *Worker) conversations(ending string) []drain.Conversation {
	now := time.Now()
	var all []drain.Conversation
	for j := range w.jobs {
		all = append(all, drain.Conversation{
			Peer: w.name, Protocol: "job", Request: j.name, Age: drain.Millis(now.Sub(j.began)), Ending: ending,
		})
	}
	slices.SortFunc(all, func(a, b drain.Conversation) int { return cmp.Compare(b.Age, a.Age) })
	return all
}

// LastCall is drain.DataPlane's: the contexts of all jobs end.
func (w *Worker) LastCall(ctx context.Context, _ time.Duration) ([]drain.Conversation, error) {
	err := w.Drain(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.conversations("cancelled")
	w.cancelWorking(ErrLastCall)
	return ended, err
}

// Close is drain.DataPlane's: it waits for the jobs in progress.
func (w *Worker) Close(ctx context.Context) error {
	_ = w.Drain(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	isFree := func() bool { return len(w.jobs) == 0 || w.ended }
	if err := w.mu.Wait(ctx, isFree); err != nil && !isFree() {
		return fmt.Errorf("worker %s has %d jobs in progress: %w", w.name, len(w.jobs), err)
	}
	w.end()
	return nil
}

// Kill is drain.DataPlane's: the contexts of all jobs end, and they are left to the end of the process.
func (w *Worker) Kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

// end makes Begin return false; mu is held.
func (w *Worker) end() {
	if w.ended {
		return
	}
	w.ended, w.accepting = true, false
	w.cancelReceiving(ErrDraining)
	w.cancelWorking(ErrLastCall)
	w.mu.Changed()
	close(w.exited)
}

// Exited implements drain.DataPlane.
func (w *Worker) Exited() <-chan struct{} { return w.exited }
