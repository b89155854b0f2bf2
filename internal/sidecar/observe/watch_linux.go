package observe

import (
	"errors"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

const (
	settleTime = time.Second // End waits at most so long for reports,
	settled    = 50          // and until so many attempts, 10 ms apart, have found none
)

// kernel has the sources of a watch, of one network namespace.
type kernel struct {
	table    *sockdiag.Table
	reports  *sockdiag.Watch
	counters sockdiag.Counters
	acks     sockets.Acks
}

// open opens everything in the namespace of the calling thread. wake is called after urgent reports: see
// sockdiag.WatchAll.
func (k *kernel) open(buffer int, wake func()) (err error) {
	if k.counters, err = sockdiag.OpenCounters(); err != nil {
		return err
	}
	if k.acks, err = sockets.OpenAcks(); err != nil {
		return err
	}
	if k.table, err = sockdiag.OpenTable(); err != nil {
		return err
	}
	k.reports, err = sockdiag.WatchAll(buffer, wake)
	return err
}

func (k *kernel) close() (err error) {
	k.counters.Close()
	k.acks.Close()
	if k.reports != nil {
		err = k.reports.Close()
	}
	if k.table != nil {
		err = errors.Join(err, k.table.Close())
	}
	return err
}

// Those of all watches of the process: looks from Begin on, and scans of the listeners before.
var (
	looks = sockdiag.Pacer{Share: 20}
	scans = sockdiag.Pacer{Share: 1000}
)

// Watch observes one network namespace. Its methods are safe for concurrent use.
type Watch struct {
	mu       sync.Mutex // guards the fields below
	kernel   kernel
	ledger   *ledger
	started  time.Time
	due      time.Time         // of the next look, or before Begin of the next scan of the listeners
	pause    time.Duration     // between scans of the listeners
	ended    []sockdiag.Socket // reports before Begin, the oldest first, which only a look can judge
	dropped  time.Time         // when the youngest one ended that there was no room for
	segments int               // counter at the last look
	changed  bool              // the next look has to read the table
	looks    sockdiag.Part
	scans    sockdiag.Part
	spent    time.Duration // processor time since the last look, for reports
	tried    time.Time     // the last look, or attempt
	paid     time.Time     // when it no longer counts: see looks

	wake   chan struct{} // a report is urgent, or Begin has come
	closes chan struct{} // see Closing
	stop   chan struct{}
	done   sync.WaitGroup
}

// Open watches a network namespace by its file, such as /proc/PID/ns/net; "" is the process's own, which needs no
// right. Another one needs CAP_SYS_ADMIN, and ptrace access to the process behind the path. The kernel reports from the
// return on, so that Begin knows the ends of the seconds before it. Until Begin the watch only reads the reports, once
// a second, and scans the listeners, every 10 s: all watches of the process together take 0.1 % of a core for the
// scans. It returns within 5 s.
func Open(path string, o Options) (*Watch, error) {
	w := &Watch{
		ledger: newLedger(o), looks: sockdiag.Part{Of: &looks}, scans: sockdiag.Part{Of: &scans},
		wake: make(chan struct{}, 1), closes: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	err := sockdiag.In(path, func() error { return w.kernel.open(o.buffer, func() { sockdiag.Notify(w.wake) }) })
	if err == nil {
		w.ledger.acks, w.started = w.kernel.acks, time.Now()
		err = w.scanLocked()
	}
	if err != nil {
		return nil, errors.Join(err, w.kernel.close())
	}
	w.done.Go(w.run)
	return w, nil
}

// Reacted is when the app closed a listener that it has not opened again, at most a minute ago and not before since;
// zero when it has not. It is exact to 10 ms on a machine that is not overloaded. since is the earliest possible moment
// of SIGTERM: Begin then counts the ends since, where it would count those of a second.
func (w *Watch) Reacted(since time.Time) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ledger.begun {
		w.bufferLocked()
		_ = w.scanLocked() // its data about a listener may be old
	}
	w.ledger.since = since
	for _, at := range w.ledger.closed {
		if !at.Before(since) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Begin is the moment of SIGTERM, or the caller's estimate; by names its source. A look judges the connections
// that ended before: those of up to a second before at count, because exit and reports race.
func (w *Watch) Begin(at time.Time, by string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ledger.begun {
		return nil
	}
	w.changed = true
	w.scans.Pause(0)
	if err := w.lookLocked(); err != nil {
		return err
	}
	var before []ending
	w.ledger.result = Termination{} // what was missed before does not matter
	w.judgeLocked(w.ended, func(e ending) { before = append(before, e) })
	w.ledger.begin(at, by, before)
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
	return len(w.ledger.listening) == 0 &&
		!w.ledger.has(func(c *connection) bool { return c.missed == 0 && !c.isInner })
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
	clock := time.NewTicker(2 * gather)
	defer clock.Stop()
	w.changed = true
	_ = w.lookLocked()
	for quiet, limit := 0, time.Now().Add(settleTime); quiet < settled && time.Now().Before(limit); {
		if w.changed = false; w.ledger.result.Overruns > 0 {
			_ = w.lookLocked()
		} else {
			w.collectLocked()
		}
		if quiet++; w.ledger.isClosing() || w.changed {
			quiet = 0
		}
		w.mu.Unlock()
		<-clock.C
		w.mu.Lock()
	}
	if w.ledger.isClosing() || len(w.ledger.halfClosed) > 0 {
		_ = w.lookLocked() // the states of those whose clients have not reacted
	}
	for limit := time.Now().Add(settleTime); w.ledger.waitsForNode() && time.Now().Before(limit); {
		w.mu.Unlock()
		time.Sleep(probeSlack)
		w.mu.Lock()
		_ = w.lookLocked() // the counters have everything that the node shows by now
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
	close(w.stop)
	w.done.Wait()
	w.looks.Pause(0)
	w.scans.Pause(0)
	return w.kernel.close()
}
