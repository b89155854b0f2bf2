package observe

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

const (
	roundPause  = 100 * time.Millisecond // between rounds of allStandby: reports are dated by so much too late; or
	quickPause  = 2 * time.Millisecond   // for the rest, after a report that wakes it
	scanFirst   = 250 * time.Millisecond // between the first scans for listeners on standby; then doubled
	maxScan     = 10 * time.Second       // up to this
	bufferTime  = 3 * time.Second        // a watch on standby keeps a report, or longer after a listener has closed
	maxClosed   = time.Minute            // a listener that closed longer ago is none of the termination
	maxBuffered = 1 << 14                // reports that a watch on standby keeps
)

// buffered are the reports of a watch on standby. They are judged at Begin, because only a look shows which side closed
// first.
type buffered struct {
	sockets []sockdiag.Socket // the oldest first
	dropped time.Time         // when the youngest one ended that there was no room for
}

// rounds polls all watches on standby of the process in turn, because a goroutine that waits for each report would wake
// for each probe of each pod. It is safe for concurrent use.
type rounds struct {
	now     chan struct{}       // wakes it: see sockdiag.WatchAll
	reports func() (int, error) // a set (epoll) of the descriptors that have reports

	mu      sync.Mutex       // guards the fields below; it is locked after that of a watch
	watches map[int32]*Watch // by the descriptors of their reports
	ready   []unix.EpollEvent
}

var allStandby = rounds{
	now: make(chan struct{}, 1), watches: map[int32]*Watch{},
	reports: sync.OnceValues(func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) }),
}

func (r *rounds) add(w *Watch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	fd := int32(w.kernel.reports.Waiting())
	reports, err := r.reports()
	if err == nil {
		err = unix.EpollCtl(reports, unix.EPOLL_CTL_ADD, int(fd), &unix.EpollEvent{Events: unix.EPOLLIN, Fd: fd})
	}
	if err != nil {
		return fmt.Errorf("watch the kernel's reports: %w", err)
	}
	if len(r.watches) == 0 {
		go r.run()
	}
	r.watches[fd] = w // instead of one that was closed since the last round
	return nil
}

// run ends with the last watch on standby.
func (r *rounds) run() {
	clock := time.NewTimer(0)
	defer clock.Stop()
	for {
		pause := roundPause
		select {
		case <-clock.C:
		case <-r.now:
			pause = quickPause
		}
		if !r.poll() {
			return
		}
		clock.Reset(pause)
	}
}

// poll makes a round, and reports whether there is a watch on standby.
func (r *rounds) poll() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	reports, _ := r.reports()
	r.ready = slices.Grow(r.ready[:0], len(r.watches))[:len(r.watches)]
	n, _ := unix.EpollWait(reports, r.ready, 0)
	for _, event := range r.ready[:max(n, 0)] {
		if w := r.watches[event.Fd]; w != nil && w.mu.TryLock() { // it may be about to wait for r.mu
			if w.standby && !w.closed {
				w.bufferLocked()
			}
			w.mu.Unlock()
		}
	}
	now := time.Now()
	for fd, w := range r.watches {
		if !w.mu.TryLock() {
			continue
		}
		switch {
		case !w.standby || w.closed:
			delete(r.watches, fd)
			_ = unix.EpollCtl(reports, unix.EPOLL_CTL_DEL, int(fd), nil) // a closed one has left the set
		case !now.Before(w.due):
			_ = w.scanListenersLocked() // one that fails is repeated
		}
		w.mu.Unlock()
	}
	return len(r.watches) > 0
}

// Standby lets the kernel report from now on, so that Begin knows the ends of the seconds before it, too. Unlike Start
// it costs nothing while nothing ends: the watch only scans the listeners, every 10 s, and all watches on standby
// together take 0.1 % of a core for that.
func (w *Watch) Standby() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.kernel != nil {
		return nil
	}
	w.standby = true
	err := w.startLocked()
	w.standby = err == nil
	return err
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
	if w.standby {
		w.bufferLocked()
		_ = w.scanListenersLocked() // its data about a listener may be old
	}
	w.ledger.since = since
	for _, at := range w.ledger.closed {
		if !at.Before(since) && time.Since(at) < maxClosed && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// scanListenersLocked reads only the listeners.
func (w *Watch) scanListenersLocked() error {
	var sockets []sockdiag.Socket
	var err error
	cost := measure(func() { sockets, err = w.kernel.table.All(sockdiag.Of(sockdiag.Listen)) })
	if err == nil {
		w.ledger.listen(sockets)
	}
	w.pause = min(max(2*w.pause, scanFirst), maxScan)
	now := time.Now()
	w.due = later(now.Add(w.pause), scans.reserve(now, cost))
	return err
}

// bufferLocked keeps the kernel's reports. At the close of a listener it takes the counter of resets: clients that are
// refused from then on belong to this termination.
func (w *Watch) bufferLocked() {
	w.kernel.reports.Receive()
	sockets, lost := w.kernel.reports.Ended()
	h, now, isClosed := &w.buffered, time.Now(), false
	for _, s := range sockets {
		isClosed = w.ledger.unlistened(s) || isClosed
		w.ledger.learn(s)
		w.ledger.noteProbe(s, arrival(s, s.Ended))
	}
	if isClosed {
		if refusing, err := w.kernel.counters.refusing(); err == nil {
			w.ledger.base(refusing, now)
		}
		w.due = now // the listener may have a successor
	}
	h.sockets = append(h.sockets, sockets...)
	first := now.Add(-bufferTime)
	for _, at := range w.ledger.closed {
		if now.Sub(at) < maxClosed && at.Add(-bufferTime).Before(first) {
			first = at.Add(-bufferTime)
		}
	}
	old := 0
	for old < len(h.sockets) && h.sockets[old].Ended.Before(first) {
		old++
	}
	if over := len(h.sockets) - maxBuffered; over > old {
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

// endStandbyLocked makes a watch on standby one that has looked: it takes a look, and judges the connections that ended
// before it.
func (w *Watch) endStandbyLocked(at time.Time) error {
	w.bufferLocked()
	w.standby, w.changed = false, true
	w.kernel.reports.Follow()
	w.done.Go(w.run)
	if err := w.lookLocked(); err != nil {
		return err
	}
	w.judgeLocked(w.buffered.sockets)
	w.ledger.blind = w.buffered.dropped.After(w.ledger.from(at))
	w.buffered = buffered{}
	return nil
}
