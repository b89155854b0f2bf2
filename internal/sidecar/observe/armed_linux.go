package observe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	glanceFirst = 250 * time.Millisecond // between glances of an armed watch at first, doubled each time
	glanceMost  = 10 * time.Second       // up to this
	holdTime    = 3 * time.Second        // an armed watch keeps a report, or longer after a listener has closed
	closedMost  = time.Minute            // a listener that closed longer ago is none of the termination
	heldMost    = 1 << 14                // reports that an armed watch keeps
)

// held are the reports of an armed watch. They are judged at Begin, because only a look shows which side closed first.
type held struct {
	sockets []sockdiag.Socket // the oldest first
	dropped time.Time         // when the youngest one ended that there was no room for
}

// Arm lets the kernel report from now on, so that Begin knows the ends of the seconds before it, too. Unlike Start it
// costs nothing while nothing ends: the watch only glances at the listeners, every 10 s, and all armed watches of the
// process together take 0.1 % of a core for that.
func (w *Watch) Arm() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel != nil {
		return nil
	}
	w.armed = true
	err := w.startLocked()
	w.armed = err == nil
	return err
}

// Reacted is when the app closed a listener that it has not opened again, at most a minute ago and not before since; zero
// when it has not. It is exact to 10 ms on a machine that is not overloaded. since is the earliest possible moment of
// SIGTERM: Begin then counts the ends since, where it would count those of a second.
func (w *Watch) Reacted(since time.Time) (first time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel == nil || w.closed {
		return first
	}
	if w.armed {
		w.holdLocked()
		_ = w.glanceLocked() // what it knows of a listener may be old
	}
	w.ledger.since = since
	for _, at := range w.ledger.closed {
		if !at.Before(since) && time.Since(at) < closedMost && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// glanceLocked looks at the listeners and, while all are there, at the counters.
func (w *Watch) glanceLocked() (err error) {
	cost := measure(func() { err = w.listenLocked() })
	w.pause = min(max(2*w.pause, glanceFirst), glanceMost)
	now := time.Now()
	w.due = later(now.Add(w.pause), glances.reserve(now, cost))
	return err
}

func (w *Watch) listenLocked() error {
	resets, err := w.kernel.counters.read() // first, as in readLocked
	if err != nil {
		return err
	}
	now := time.Now()
	sockets, err := w.kernel.table.All(sockdiag.Of(sockdiag.Listen))
	if err != nil {
		return err
	}
	w.ledger.listen(sockets)
	w.ledger.refused(resets.refusing(), now)
	return nil
}

// holdLocked keeps the kernel's reports. At the close of a listener it takes the counter of resets: clients that are
// refused from then on belong to this termination.
func (w *Watch) holdLocked() {
	sockets, lost := w.kernel.reports.Ended()
	h, now, isClosed := &w.held, time.Now(), false
	for _, s := range sockets {
		isClosed = w.ledger.unlistened(s) || isClosed
		w.ledger.learn(s)
		w.ledger.noteProbe(s, arrival(s, s.Ended))
	}
	if isClosed {
		if resets, err := w.kernel.counters.read(); err == nil {
			w.ledger.base(resets.refusing(), now)
		}
		w.due = now // the listener may have a successor
	}
	h.sockets = append(h.sockets, sockets...)
	first := now.Add(-holdTime)
	for _, at := range w.ledger.closed {
		if now.Sub(at) < closedMost && at.Add(-holdTime).Before(first) {
			first = at.Add(-holdTime)
		}
	}
	old := 0
	for old < len(h.sockets) && h.sockets[old].Ended.Before(first) {
		old++
	}
	if over := len(h.sockets) - heldMost; over > old {
		old, h.dropped = over, h.sockets[over-1].Ended
	}
	if lost {
		h.dropped = now
	}
	for _, s := range h.sockets[:old] {
		delete(w.ledger.listeners, s.Cookie) // its report will not be judged
	}
	if h.sockets = h.sockets[old:]; len(h.sockets) == 0 {
		h.sockets = nil // their memory
	}
}

// disarmLocked makes an armed watch one that has looked: it takes a look, and judges what ended before it.
func (w *Watch) disarmLocked(at time.Time) error {
	w.holdLocked()
	w.armed, w.changed = false, true
	if err := w.lookLocked(); err != nil {
		return err
	}
	w.judgeLocked(w.held.sockets)
	w.ledger.blind = w.held.dropped.After(w.ledger.from(at))
	w.held = held{}
	return nil
}
