package observe

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// Before Begin.
const (
	calmPause   = time.Second            // between readings of the reports, which are dated by so much too late; or
	closedPause = 100 * time.Millisecond // after the close of a listener; or
	quickPause  = 2 * time.Millisecond   // for the rest, after a report that wakes it
	scanFirst   = 250 * time.Millisecond // between the first scans for listeners; then doubled
	maxScan     = 10 * time.Second       // up to this
	bufferTime  = 3 * time.Second        // a report is kept, or longer after a listener has closed
	maxClosed   = time.Minute            // a listener that closed longer ago is none of the termination
	maxBuffered = 1 << 14                // reports that are kept
	earlyPause  = 100 * time.Millisecond // between looks of Options.LooksEarly, or
	earlyShare  = 500                    // this many times the cost of a look, but no more than
	maxEarly    = time.Second            // this
)

// From Begin on.
const (
	interval      = 25 * time.Millisecond  // between looks, or when looks allows the next
	stillInterval = 100 * time.Millisecond // likewise, while nothing moves
	gather        = 5 * time.Millisecond   // one look for many reports
)

// run reads the reports, and takes looks from Begin on.
func (w *Watch) run() {
	clock := time.NewTimer(scanFirst)
	defer clock.Stop()
	for {
		isUrgent := false
		select {
		case <-w.stop:
			return
		case <-w.wake:
			isUrgent = true
		case <-clock.C:
		}
		w.mu.Lock()
		clock.Reset(w.stepLocked(isUrgent))
		w.mu.Unlock()
	}
}

// stepLocked reads the reports, takes a look if one is due, and returns the time until the next step. After Begin,
// urgent reports are only dated: one look is for many.
func (w *Watch) stepLocked(isUrgent bool) (pause time.Duration) {
	now := time.Now()
	switch {
	case w.ledger.begun && isUrgent:
		w.kernel.reports.Receive()
		return max(gather, w.paid.Sub(now)) // they may need the table
	case !w.ledger.begun:
		w.bufferLocked()
		if w.ledger.options.LooksEarly && !now.Before(w.due) {
			_ = w.lookLocked() // one that fails is repeated
		}
		// All watches of the process read at once, because most of the cost is to wake an idle process.
		if pause = now.Truncate(calmPause).Add(calmPause).Sub(now); isUrgent {
			pause = quickPause
		}
		if len(w.ledger.closed) > 0 {
			pause = min(pause, closedPause)
		}
	default:
		w.spent += sockdiag.Measure(w.collectLocked)
		if !now.Before(w.due) || w.ledger.listenerClosed {
			_ = w.lookLocked() // one that fails is repeated
		}
		pause = max(interval, time.Until(w.due)/4) // several readings for a look that has to wait
	}
	if len(w.ledger.listening) < len(w.ledger.ports) {
		sockdiag.Notify(w.closes)
	}
	if w.ledger.begun || w.pause < calmPause { // a later scan waits for the next reading
		pause = min(pause, max(time.Until(w.due), quickPause))
	}
	return pause
}

// scanLocked reads only the listeners.
func (w *Watch) scanLocked() error {
	var sockets []sockdiag.Socket
	var err error
	cost := sockdiag.Measure(func() { sockets, err = w.kernel.table.All(sockdiag.Of(sockdiag.Listen)) })
	if err == nil {
		w.ledger.listen(sockets)
	}
	w.pause = min(max(2*w.pause, scanFirst), maxScan)
	w.due = time.Now().Add(max(w.pause, w.scans.Pause(cost)))
	return err
}

// bufferLocked keeps the kernel's reports. At the close of a listener it takes the counter of resets: clients that are
// refused from then on belong to this termination.
func (w *Watch) bufferLocked() {
	w.kernel.reports.Receive()
	sockets, lost := w.kernel.reports.Ended()
	now, isClosed := time.Now(), false
	for _, s := range sockets {
		isClosed = w.ledger.unlistened(s) || isClosed
		w.ledger.note(s, w.ledger.open[s.Cookie])
	}
	if isClosed {
		if refusing, err := w.kernel.counters.Resets(); err == nil {
			w.ledger.base(refusing, now)
		}
		w.due = now // the listener may have a successor
	}
	w.ended = append(w.ended, sockets...)
	isOld := func(_ uint16, at time.Time) bool { return now.Sub(at) >= maxClosed }
	maps.DeleteFunc(w.ledger.closed, isOld)
	maps.DeleteFunc(w.ledger.exited, isOld)
	first := slices.MinFunc(append(slices.Collect(maps.Values(w.ledger.closed)), now), time.Time.Compare)
	old := 0
	for old < len(w.ended) && w.ended[old].Ended.Before(first.Add(-bufferTime)) {
		old++
	}
	if over := len(w.ended) - maxBuffered; over > old {
		old, w.dropped = over, w.ended[over-1].Ended
	}
	if lost {
		w.dropped = now
	}
	for _, s := range w.ended[:old] {
		delete(w.ledger.listeners, s.Cookie) // its report will not be judged
		delete(w.ledger.open, s.Cookie)
	}
	if w.ended = w.ended[old:]; len(w.ended) == 0 {
		w.ended = nil // their memory
	}
	if !now.Before(w.due) && !w.ledger.options.LooksEarly {
		_ = w.scanLocked() // one that fails is repeated
	}
}

// lookLocked takes a look, and sets the time of the next. From Begin on, one that fails leaves the watch blind.
func (w *Watch) lookLocked() (err error) {
	var pause time.Duration
	cost := w.spent + sockdiag.Measure(func() { pause, err = w.readLocked() })
	now := time.Now()
	if err != nil && w.ledger.begun {
		w.ledger.result.Blind += drain.Millis(now.Sub(w.tried))
	}
	w.tried = now
	if w.due, w.spent = now.Add(min(max(earlyPause, earlyShare*cost), maxEarly)), 0; w.ledger.begun {
		w.paid = now.Add(w.looks.Pause(cost))
		w.due = later(now.Add(pause), w.paid)
	}
	return err
}

// readLocked brings the ledger up to date, and returns the time until the next look. It reads the machine's table of
// sockets only if the namespace has received or sent a segment, because otherwise what has ended is in the reports, and
// nothing else can have changed.
func (w *Watch) readLocked() (pause time.Duration, err error) {
	w.collectLocked()
	segments, err := w.kernel.counters.Segments()
	if err != nil {
		return interval, err
	}
	if !w.changed && segments == w.segments && w.ledger.still() {
		return stillInterval, nil
	}
	refusing, err := w.kernel.counters.Resets() // before the table: a listener that it shows was there at these resets
	if err != nil {
		return interval, err
	}
	readAt := time.Now() // the kernel answers within the call; this process may read the answer later
	sockets, err := w.kernel.table.All(states)
	if err != nil {
		return interval, err
	}
	w.ledger.look(sockets, readAt)
	w.ledger.refused(refusing, readAt)
	w.ledger.explain(sockets, readAt, w.closedHere())
	w.segments, w.changed = segments, false
	return interval, nil
}

// collectLocked takes the kernel's reports, which only Begin judges before it.
func (w *Watch) collectLocked() {
	if !w.ledger.begun {
		w.bufferLocked()
		return
	}
	w.kernel.reports.Receive()
	sockets, lost := w.kernel.reports.Ended()
	w.changed = w.changed || lost || len(sockets) > 0
	if lost {
		w.ledger.result.Overruns++
	}
	w.judgeLocked(sockets, w.ledger.include)
}

// judgeLocked judges destroyed sockets.
func (w *Watch) judgeLocked(sockets []sockdiag.Socket, on func(ending)) {
	closedHere := w.closedHere()
	for _, s := range sockets {
		if e, counts := w.ledger.destroyed(s, func() bool { return closedHere()[s.Ends()] }); counts {
			on(e)
		}
	}
}

// closedHere reads the table at its first call. If that fails, an end by the app looks like one by the client.
func (w *Watch) closedHere() func() map[sockdiag.Ends]bool {
	return sync.OnceValue(func() map[sockdiag.Ends]bool {
		ends, err := w.kernel.table.ClosedHere()
		if err != nil {
			w.ledger.result.Overruns++
		}
		return ends
	})
}
