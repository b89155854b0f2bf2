// Package logs writes log lines without blocking on their reader.
//
// The promises:
//
//   - Writing a line never blocks: a stalled reader (a full pipe, a paused terminal, a hung disk) costs lines, not
//     time.
//   - The buffer for the reader is bounded in bytes, and so is a line.
//   - Dropped lines are counted.
//   - Close delivers the buffer to a reader that reads, and gives up on one that does not.
//   - A message that a peer can cause repeatedly is logged once per interval, with the number of suppressed ones
//     (Throttle).
package logs

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// DefaultBound is the buffer of a program's own log, bytes.
	DefaultBound = 1 << 20

	// CloseTime is how long Close waits for a stalled reader. A pipe's buffer takes a report's line at once, even if
	// its reader is slow.
	CloseTime = 250 * time.Millisecond

	// maxLine is the length at which a line is cut, bytes.
	maxLine = 64 << 10

	// maxSpare is the largest buffer that is kept for the next lines, bytes.
	maxSpare = 256 << 10
)

// Writer writes lines to a file. Lines are collected during a write and written together.
type Writer struct {
	w       io.Writer
	bound   int
	dropped atomic.Uint64

	mu         sync.Mutex // guards the fields below
	cond       sync.Cond
	buf        []byte
	lines      uint64                       // in buf
	unreported uint64                       // lost since the last call of onLoss
	failed     bool                         // the latest write has failed, and onLoss was called
	onLoss     func(lost uint64, err error) // may be nil
	done       bool

	gone chan struct{}
}

// New starts a Writer on w with a buffer of bound bytes. Close ends it.
func New(w io.Writer, bound int) *Writer {
	l := &Writer{w: w, bound: bound, gone: make(chan struct{})}
	l.cond.L = &l.mu
	go l.run()
	return l
}

// OnLoss sets the function that is called with the number of lines lost since its last call: when w has failed (with
// err), and when w takes lines again after some were dropped. It is called from the writing goroutine and may write
// lines itself.
func (l *Writer) OnLoss(f func(lost uint64, err error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onLoss = f
}

func (l *Writer) run() {
	defer close(l.gone)
	var spare []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.buf) == 0 {
			if l.done {
				return
			}
			l.cond.Wait()
		}
		out, lines := l.buf, l.lines
		l.buf, l.lines = spare[:0], 0
		l.mu.Unlock()
		_, err := l.w.Write(out)
		if spare = out; cap(spare) > maxSpare {
			spare = nil
		}
		l.mu.Lock()
		if err != nil { // a full disk must not stop the program
			l.drop(lines)
		}
		// onLoss writes into the buffer: if that is full, another write follows.
		if lost, report := l.unreported, l.onLoss; report != nil && (lost > 0 || l.failed && err == nil) &&
			len(l.buf) <= l.bound/2 {
			l.unreported, l.failed = 0, err != nil
			l.mu.Unlock()
			report(lost, err)
			l.mu.Lock()
		}
	}
}

// drop counts lost lines. The caller holds mu.
func (l *Writer) drop(lines uint64) {
	l.dropped.Add(lines)
	l.unreported += lines
}

// Write takes whole lines. It never fails and never blocks on w.
func (l *Writer) Write(p []byte) (int, error) {
	lines := uint64(max(1, bytes.Count(p, []byte{'\n'})))
	l.append(lines, func(b []byte) []byte {
		if len(p) <= maxLine+1 || lines > 1 {
			return append(b, p...)
		}
		return append(append(b, p[:maxLine]...), "…\n"...)
	})
	return len(p), nil
}

// Append lets f append one line to the buffer; f is not called when the line is dropped. It is Write without a copy.
func (l *Writer) Append(f func([]byte) []byte) { l.append(1, f) }

func (l *Writer) append(lines uint64, f func([]byte) []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > l.bound || l.done {
		l.drop(lines)
		return
	}
	l.buf = f(l.buf)
	l.lines += lines
	l.cond.Signal()
}

// Dropped is the number of lines that were not written.
func (l *Writer) Dropped() uint64 { return l.dropped.Load() }

// Metric counts the dropped lines of the log called name.
func (l *Writer) Metric(name string) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "lastcall_log_lines_dropped_total",
		Help:        "Lines of a log that were dropped because nothing read it, or because they could not be written.",
		ConstLabels: prometheus.Labels{"log": name},
	}, func() float64 { return float64(l.Dropped()) })
}

// Close writes the buffer and returns, no later than CloseTime after the call. Later lines are dropped.
func (l *Writer) Close() {
	l.mu.Lock()
	l.done = true
	l.cond.Signal()
	l.mu.Unlock()
	late := time.NewTimer(CloseTime)
	defer late.Stop()
	select {
	case <-l.gone:
	case <-late.C:
		l.mu.Lock()
		l.drop(l.lines)
		l.buf, l.lines = nil, 0
		l.mu.Unlock()
	}
}
