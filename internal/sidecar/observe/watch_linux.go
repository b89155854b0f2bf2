package observe

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	settleTime = time.Second // End waits at most so long for reports,
	settled    = 50          // and until so many attempts, 10 ms apart, have found none
)

// Watch observes one network namespace. Its methods are safe for concurrent use.
type Watch struct {
	namespace *os.File // nil: the process's own
	buffer    int      // of the kernel's reports, bytes; 0: the default

	mu       sync.Mutex // guards the fields below
	kernel   *kernel    // nil: not started
	ledger   *ledger
	started  time.Time
	due      time.Time         // of the next look, or before Begin of the next scan of the listeners
	pause    time.Duration     // between scans of the listeners
	ended    []sockdiag.Socket // reports before Begin, the oldest first, which only a look can judge
	dropped  time.Time         // when the youngest one ended that there was no room for
	segments int               // counter at the last look
	changed  bool              // the next look has to read the table
	closed   bool
	looks    debt
	scans    debt

	wake   chan struct{} // a report is urgent, or Begin has come
	closes chan struct{} // see Closing
	stop   chan struct{}
	done   sync.WaitGroup
}

// Open opens a network namespace by its file, such as /proc/PID/ns/net; "" is the process's own, which needs no right.
// Another one needs CAP_SYS_ADMIN, and ptrace access to the process behind the path. An open Watch that has not started
// costs one file descriptor, and keeps the namespace alive after its last process.
func Open(path string, o Options) (*Watch, error) {
	w := &Watch{ledger: newLedger(o), wake: make(chan struct{}, 1), closes: make(chan struct{}, 1),
		stop: make(chan struct{}), looks: debt{of: &looks}, scans: debt{of: &scans}}
	if path == "" {
		return w, nil
	}
	namespace, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a network namespace: %w", err)
	}
	w.namespace = namespace
	return w, nil
}

// Start enters the namespace and lets the kernel report from now on, so that Begin knows the ends of the seconds before
// it. Until Begin the watch only reads the reports, once a second, and scans the listeners, every 10 s: all watches
// of the process together take 0.1 % of a core for the scans. It returns within 5 s.
func (w *Watch) Start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.startLocked()
}

func (w *Watch) startLocked() error {
	switch {
	case w.closed:
		return errors.New("observe a network namespace: the watch is closed")
	case w.kernel != nil:
		return nil
	}
	kernel, err := openKernel(w.namespace, w.buffer, func() { sockdiag.Notify(w.wake) })
	if err != nil {
		return err
	}
	w.kernel, w.ledger.acks, w.started = kernel, kernel.counters.acks, time.Now()
	if err := w.scanLocked(); err != nil {
		w.kernel = nil
		return errors.Join(err, kernel.close())
	}
	w.done.Go(w.run)
	return nil
}

// Reacted is when the app closed a listener that it has not opened again, at most a minute ago and not before since;
// zero when it has not. It is exact to 10 ms on a machine that is not overloaded. since is the earliest possible moment
// of SIGTERM: Begin then counts the ends since, where it would count those of a second.
func (w *Watch) Reacted(since time.Time) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel == nil || w.closed {
		return first
	}
	if !w.ledger.begun {
		w.bufferLocked()
		_ = w.scanLocked() // its data about a listener may be old
	}
	w.ledger.since = since
	for _, at := range w.ledger.closed {
		if !at.Before(since) && time.Since(at) < maxClosed && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Begin is the moment of SIGTERM, or the caller's estimate; by names its source. It starts the watch if it has not
// started. A look judges the connections that ended before: those of up to a second before at count, because exit and
// reports race.
func (w *Watch) Begin(at time.Time, by string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.startLocked(); err != nil || w.ledger.begun {
		return err
	}
	w.changed = true
	if err := w.lookLocked(); err != nil {
		return err
	}
	w.ledger.begin(at, by, w.judgeLocked(w.ended))
	if w.dropped.After(w.ledger.from(at)) {
		w.ledger.result.Overruns++
	}
	w.ended, w.due = nil, time.Now().Add(interval)
	sockdiag.Notify(w.wake)
	return nil
}

// Listening are the watched ports that had a listener at the last look.
func (w *Watch) Listening() []uint16 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]uint16(nil), w.ledger.listening...)
}

// Closing receives while a watched port that had a listener has none.
func (w *Watch) Closing() <-chan struct{} { return w.closes }

// Gone reports whether no watched port has a listener and no client's connection is left.
func (w *Watch) Gone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ledger.listening) == 0 && w.ledger.left() == 0
}

// Peek is the result if the observation ended now.
func (w *Watch) Peek() Termination {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ledger.peek(time.Now())
}

// End ends the observation and returns the result. at is when the app ended. It takes at most 2 s: one it waits for the
// reports of connections that are being closed, and one for the node's, of refused probes.
func (w *Watch) End(at time.Time, exit Exit) Termination {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel != nil && !w.closed {
		clock := time.NewTicker(2 * gather)
		defer clock.Stop()
		w.changed = true
		w.tickLocked()
		for quiet, limit := 0, time.Now().Add(settleTime); quiet < settled && time.Now().Before(limit); {
			if w.changed = false; w.ledger.result.Overruns > 0 {
				w.tickLocked()
			} else {
				w.collectLocked()
			}
			if quiet++; w.ledger.closing() > 0 || w.changed {
				quiet = 0
			}
			w.mu.Unlock()
			<-clock.C
			w.mu.Lock()
		}
		if w.ledger.closing() > 0 || w.ledger.isDoubtful() {
			w.tickLocked() // the states of those whose clients have not reacted
		}
		for limit := time.Now().Add(settleTime); w.ledger.waitsForNode() && time.Now().Before(limit); {
			w.mu.Unlock()
			time.Sleep(probeSlack)
			w.mu.Lock()
			w.tickLocked() // the counters have everything that the node shows by now
		}
	}
	if life := at.Sub(w.started); len(w.ledger.ports) == 0 && life < scanFirst {
		w.ledger.result.Blind += max(drain.Millis(life), 1) // listeners may have come and gone between two scans
	}
	w.ledger.conclude(at)
	t := w.ledger.peek(at)
	t.Exit = exit
	return t
}

// Close ends everything; the Watch cannot be used again.
func (w *Watch) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.mu.Unlock()
	close(w.stop)
	w.done.Wait()
	w.looks.release(time.Now())
	w.scans.release(time.Now())
	var errs []error
	if w.kernel != nil {
		errs = append(errs, w.kernel.close())
	}
	if w.namespace != nil {
		errs = append(errs, w.namespace.Close())
	}
	return errors.Join(errs...)
}
