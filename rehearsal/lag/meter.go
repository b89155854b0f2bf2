// Package lag measures how long programs on this machine wait for a processor, so that a rehearsal on a busy machine is
// judged by what it shows and not by the load beside it.
package lag

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	period = 100 * time.Millisecond // between two samples
	nap    = 10 * time.Millisecond  // a wake-up waits for a processor
	work   = 3 * time.Millisecond   // so does work, once its time slice is over
)

// sample is how long one nap and its work were held up.
type sample struct {
	at    time.Time // its end
	delay time.Duration
}

// Meter takes samples until its end.
type Meter struct {
	done  chan struct{}
	ended sync.WaitGroup
	fixed time.Duration // of Fixed

	mu      sync.Mutex // guards what follows
	samples []sample
}

// Start begins to measure. End it.
func Start() *Meter {
	m := &Meter{done: make(chan struct{})}
	m.ended.Go(m.run)
	return m
}

// Fixed is a meter that has measured one delay, at all times, for tests.
func Fixed(delay time.Duration) *Meter { return &Meter{fixed: delay} }

// End stops measuring. What was measured stays.
func (m *Meter) End() {
	close(m.done)
	m.ended.Wait()
}

func (m *Meter) run() {
	runtime.LockOSThread() // its processor time is asked
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		s := take()
		m.mu.Lock()
		m.samples = append(m.samples, s)
		m.mu.Unlock()
		select {
		case <-tick.C:
		case <-m.done:
			return
		}
	}
}

func take() sample {
	began := time.Now()
	time.Sleep(nap)
	from := threadTime()
	worked := time.Duration(0)
	for worked < work {
		for range 1000 {
		}
		worked = threadTime() - from
	}
	at := time.Now()
	return sample{at, max(0, at.Sub(began)-nap-worked)}
}

// threadTime is the processor time that this thread has had.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return time.Duration(time.Now().UnixNano()) // no load is seen then
	}
	return time.Duration(t.Nano())
}

// hops are the programs that take their turns one after the other before an event of a termination is seen: the
// kubelet, a hook, the sidecar, the app or the gateway.
const hops = 4

// Allowance is how much later than alone something may be that was begun and seen at these moments.
func (m *Meter) Allowance(began, seen time.Time) time.Duration { return hops * m.Worst(began, seen) }

// Note says in words that a machine was busy; empty for a quiet one.
func Note(allowance time.Duration) string {
	if allowance < 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf("The machine was busy: programs waited up to %d ms for a processor, so times were judged with up to %.1f s more.",
		(allowance / hops).Milliseconds(), allowance.Seconds())
}

// Worst is the longest delay between two moments. A nil meter has measured none.
func (m *Meter) Worst(from, to time.Time) (worst time.Duration) {
	if m == nil {
		return 0
	}
	worst = m.fixed
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.samples {
		if s.at.After(from) && s.at.Add(-s.delay).Before(to) {
			worst = max(worst, s.delay)
		}
	}
	return worst
}
