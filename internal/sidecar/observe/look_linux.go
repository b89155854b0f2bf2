package observe

import (
	"net/netip"
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
	interval      = 25 * time.Millisecond  // between looks, or when pacer allows the next
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
		return max(gather, looks.paid().Sub(now)) // they may need the table
	case !w.ledger.begun:
		w.bufferLocked()
		if w.ledger.options.LooksEarly && !now.Before(w.due) {
			_ = w.lookLocked() // one that fails is repeated
		}
		// All watches of the process read at once, because most of the cost is to wake an idle process.
		if pause = now.Truncate(calmPause).Add(calmPause).Sub(now); isUrgent {
			pause = quickPause
		}
		for _, at := range w.ledger.closed {
			if now.Sub(at) < maxClosed {
				pause = min(pause, closedPause)
			}
		}
	default:
		some := false
		if cost := measure(func() { some = w.collectLocked() }); some {
			w.looks.reserve(now, cost)
		}
		if !now.Before(w.due) || w.ledger.listenerClosed {
			w.tickLocked()
		}
		pause = max(interval, time.Until(w.due)/4) // several readings for a look that has to wait
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
	cost := measure(func() { sockets, err = w.kernel.table.All(sockdiag.Of(sockdiag.Listen)) })
	if err == nil {
		w.ledger.listen(sockets)
		w.noteCloseLocked()
	}
	w.pause = min(max(2*w.pause, scanFirst), maxScan)
	now := time.Now()
	w.due = later(now.Add(w.pause), w.scans.reserve(now, cost))
	return err
}

// noteCloseLocked sends on Closing.
func (w *Watch) noteCloseLocked() {
	if len(w.ledger.listening) < len(w.ledger.ports) {
		sockdiag.Notify(w.closes)
	}
}

// bufferLocked keeps the kernel's reports. At the close of a listener it takes the counter of resets: clients that are
// refused from then on belong to this termination.
func (w *Watch) bufferLocked() {
	w.kernel.reports.Receive()
	sockets, lost := w.kernel.reports.Ended()
	now, isClosed := time.Now(), false
	for _, s := range sockets {
		isClosed = w.ledger.unlistened(s) || isClosed
		w.ledger.note(s, nil)
		if c := w.ledger.open[s.Cookie]; c != nil {
			c.missed, c.isReported = 1, true
		}
	}
	if isClosed {
		if refusing, err := w.kernel.counters.refusing(); err == nil {
			w.ledger.base(refusing, now)
		}
		w.due = now // the listener may have a successor
	}
	w.ended = append(w.ended, sockets...)
	first := now.Add(-bufferTime)
	for _, at := range w.ledger.closed {
		if now.Sub(at) < maxClosed && at.Add(-bufferTime).Before(first) {
			first = at.Add(-bufferTime)
		}
	}
	old := 0
	for old < len(w.ended) && w.ended[old].Ended.Before(first) {
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

// tickLocked takes a look; one that fails leaves the watch blind until the next.
func (w *Watch) tickLocked() {
	if before := w.ledger.looked; w.lookLocked() != nil {
		w.ledger.looked = time.Now()
		w.ledger.result.Blind += drain.Millis(w.ledger.looked.Sub(before))
	}
}

// lookLocked takes a look, and sets the time of the next.
func (w *Watch) lookLocked() (err error) {
	pause := interval
	cost := measure(func() {
		var still bool
		if still, err = w.readLocked(); still {
			pause = stillInterval
		}
	})
	now := time.Now()
	if w.due = now.Add(min(max(earlyPause, earlyShare*cost), maxEarly)); w.ledger.begun {
		w.due = later(now.Add(pause), w.looks.reserve(now, cost))
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
	w.noteCloseLocked()
	return false, nil
}

// ends names a connection, as TIME_WAIT sockets have it.
type ends struct{ local, remote netip.AddrPort }

// collectLocked takes the kernel's reports, which only Begin judges before it, and returns whether there were some.
func (w *Watch) collectLocked() (some bool) {
	if !w.ledger.begun {
		w.bufferLocked()
		return false
	}
	w.kernel.reports.Receive()
	sockets, lost := w.kernel.reports.Ended()
	some = lost || len(sockets) > 0
	w.changed = w.changed || some
	if lost {
		w.ledger.result.Overruns++
	}
	for _, e := range w.judgeLocked(sockets) {
		w.ledger.include(e)
	}
	return some
}

// judgeLocked judges destroyed sockets.
func (w *Watch) judgeLocked(sockets []sockdiag.Socket) (out []ending) {
	isWaiting := w.isWaiting()
	for _, s := range sockets {
		if e, counts := w.ledger.destroyed(s, func() bool { return isWaiting(ends{s.Local, s.Remote}) }); counts {
			out = append(out, e)
		}
	}
	return out
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
