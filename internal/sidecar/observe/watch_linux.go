package observe

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	calmInterval     = 250 * time.Millisecond // between looks before Begin, or
	calmShare        = 500                    // this many times the cost of a look, but no more than
	maxCalm          = time.Second            // this
	interval         = 25 * time.Millisecond  // between looks after it, or when pacer allows the next
	stillInterval    = 100 * time.Millisecond // likewise, while nothing moves
	gather           = 5 * time.Millisecond   // one look for many reports
	settleTime       = time.Second            // End waits at most so long for reports,
	settled          = 10                     // and until so many attempts have found none;
	withoutSentinels = 25                     // without sentinels this many, because a busy kernel is that late
)

// Watch observes one network namespace. Its methods are safe for concurrent use.
type Watch struct {
	namespace *os.File // nil: the process's own
	buffer    int      // of the kernel's reports, bytes; 0: the default

	mu       sync.Mutex // guards the fields below
	kernel   *kernel    // nil: not started
	ledger   *ledger
	started  time.Time
	due      time.Time // of the next look
	segments int       // counter at the last look
	changed  bool      // the next look has to read the table
	standby  bool      // see Standby
	buffered buffered
	pause    time.Duration // between scans of the listeners
	closed   bool

	begun  chan struct{} // wakes run
	closes chan struct{} // see Closing
	stop   chan struct{}
	done   sync.WaitGroup
}

// Open opens a network namespace by its file, such as /proc/PID/ns/net; "" is the process's own, which needs no right.
// Another one needs CAP_SYS_ADMIN, and ptrace access to the process behind the path. An open Watch that has not started
// costs one file descriptor, and keeps the namespace alive after its last process.
func Open(path string, o Options) (*Watch, error) {
	w := &Watch{ledger: newLedger(o), begun: make(chan struct{}, 1), closes: make(chan struct{}, 1),
		stop: make(chan struct{})}
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

// Start enters the namespace and begins to collect: the sockets there are, and the kernel's reports. It returns within
// 5 s. Between Start and Begin the watch looks at the table four times a second, or once if that would
// take more than 0.2 % of a core.
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
	kernel, err := openKernel(w.namespace, w.buffer)
	if err != nil {
		return err
	}
	w.kernel, w.ledger.acks, w.started = kernel, kernel.counters.acks, time.Now()
	if !w.standby {
		err = w.lookLocked()
	} else if err = w.scanListenersLocked(); err == nil {
		err = allStandby.add(w)
	}
	switch {
	case err != nil:
		w.kernel = nil
		return errors.Join(err, kernel.close())
	case !w.standby:
		kernel.reports.Follow()
		w.done.Go(w.run)
	}
	return nil
}

// Begin is the moment of SIGTERM, or the caller's estimate; by names its source. It starts the watch if it has not
// started. Ends of up to a second before at count, because exit and reports race.
func (w *Watch) Begin(at time.Time, by string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	started := w.kernel != nil
	if err := w.startLocked(); err != nil {
		return err
	}
	if !w.ledger.begun {
		switch w.changed = true; {
		case w.standby:
			if err := w.endStandbyLocked(at); err != nil {
				return err
			}
		case started:
			w.tickLocked() // the listeners and connections of the last second
		}
		w.ledger.begin(at, by)
		w.due = w.ledger.looked.Add(interval)
		sockdiag.Notify(w.begun)
	}
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
		enough := settled
		sentinels, cookies, err := openSentinels(w.namespace)
		if err == nil {
			w.ledger.sentinels = cookies
		} else {
			enough = withoutSentinels
		}
		w.done.Go(func() { closeSentinels(sentinels) })
		for quiet, limit := 0, time.Now().Add(settleTime); quiet < enough && time.Now().Before(limit); {
			if w.changed = false; w.ledger.result.Overruns > 0 {
				w.tickLocked()
			} else {
				w.collectLocked()
			}
			if quiet++; w.ledger.closing() > 0 || len(w.ledger.sentinels) > 0 || w.changed {
				quiet = 0
			}
			w.mu.Unlock()
			<-clock.C
			w.mu.Lock()
		}
		if len(w.ledger.sentinels) > 0 {
			w.ledger.result.Overruns++
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
	var errs []error
	if w.kernel != nil {
		errs = append(errs, w.kernel.close())
	}
	if w.namespace != nil {
		errs = append(errs, w.namespace.Close())
	}
	return errors.Join(errs...)
}

func (w *Watch) run() {
	clock := time.NewTimer(0)
	defer clock.Stop()
	gone := w.kernel.reports.Gone()
	for {
		w.mu.Lock()
		due := w.due
		w.mu.Unlock()
		clock.Reset(time.Until(due))
		select {
		case <-w.stop:
			return
		case <-w.begun: // due has changed
			continue
		case <-clock.C:
			w.mu.Lock()
			w.tickLocked()
			w.mu.Unlock()
			continue
		case _, open := <-gone:
			if !open {
				gone = nil
				continue
			}
		}
		clock.Reset(max(gather, time.Until(looks.paid()))) // a report may need the table
		select {
		case <-clock.C:
		case <-w.begun:
			continue
		case <-w.stop:
			return
		}
		w.mu.Lock()
		if looks.reserve(time.Now(), measure(w.collectLocked)); w.ledger.unlisten {
			w.tickLocked()
		}
		w.mu.Unlock()
	}
}

// tickLocked takes a look; one that fails leaves the watch blind until the next.
func (w *Watch) tickLocked() {
	if before := w.ledger.looked; w.lookLocked() != nil {
		w.ledger.looked = time.Now()
		w.ledger.result.Blind += drain.Millis(w.ledger.looked.Sub(before))
	}
}

// lookLocked takes a look, and sets the time of the next.
func (w *Watch) lookLocked() (err error) {
	still := false
	cost := measure(func() { still, err = w.readLocked() })
	now := time.Now()
	switch {
	case !w.ledger.begun:
		w.due = now.Add(min(max(calmInterval, calmShare*cost), maxCalm))
	case still:
		w.due = later(now.Add(stillInterval), looks.reserve(now, cost))
	default:
		w.due = later(now.Add(interval), looks.reserve(now, cost))
	}
	return err
}

// readLocked brings the ledger up to date. It reads the machine's table of sockets only if the namespace has received
// or sent a segment, because otherwise what has ended is in the reports, and nothing else can have changed. It reports
// whether it was so.
func (w *Watch) readLocked() (still bool, err error) {
	w.collectLocked()
	segments, err := w.kernel.counters.segments()
	if err != nil {
		return false, err
	}
	if !w.changed && segments == w.segments && w.ledger.still() {
		w.ledger.age(time.Now())
		return true, nil
	}
	refusing, err := w.kernel.counters.refusing() // before the table: a listener that it shows was there at these resets
	if err != nil {
		return false, err
	}
	readAt := time.Now() // the kernel answers within the call; this process may read the answer later
	sockets, err := w.kernel.table.All(states)
	if err != nil {
		return false, err
	}
	w.ledger.look(sockets, readAt)
	w.ledger.refused(refusing, readAt)
	w.ledger.explain(w.isWaiting())
	w.segments, w.changed = segments, false
	if len(w.ledger.listening) < len(w.ledger.ports) {
		sockdiag.Notify(w.closes)
	}
	return false, nil
}

// ends names a connection, as TIME_WAIT sockets have it.
type ends struct{ local, remote netip.AddrPort }

// collectLocked takes the kernel's reports.
func (w *Watch) collectLocked() {
	sockets, lost := w.kernel.reports.Ended()
	w.changed = w.changed || lost || len(sockets) > 0
	if lost {
		w.ledger.result.Overruns++
	}
	w.judgeLocked(sockets)
}

// judgeLocked adds destroyed sockets to the ledger.
func (w *Watch) judgeLocked(sockets []sockdiag.Socket) {
	isWaiting := w.isWaiting()
	for _, s := range sockets {
		w.ledger.destroyed(s, func() bool { return isWaiting(ends{s.Local, s.Remote}) })
	}
}

// isWaiting reports which connections this side closed first. It reads the table when it is first called, because that
// may be large.
func (w *Watch) isWaiting() func(ends) bool {
	waiting := sync.OnceValue(func() map[ends]bool {
		sockets, _ := w.kernel.table.All(sockdiag.Of(sockdiag.TimeWait, sockdiag.FinWait2)) // an error: it shows none
		out := make(map[ends]bool, len(sockets))
		for _, s := range sockets {
			out[ends{s.Local, s.Remote}] = true
		}
		return out
	})
	return func(e ends) bool { return waiting()[e] }
}
