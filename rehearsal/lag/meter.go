// Package lag measures how long programs on this machine wait for a processor, so that a rehearsal on a busy machine is
// not judged by the machine's load.
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
	nap    = 10 * time.Millisecond  // to measure how late a wake-up is
	work   = 3 * time.Millisecond   // to measure how long work waits once its time slice has ended
)

// sample is how long one nap and its work were delayed.
type sample struct {
	at    time.Time // its end
	delay time.Duration
}

// Meter takes samples until End.
type Meter struct {
	done  chan struct{}
	ended sync.WaitGroup
	fixed time.Duration // of Fixed

	mu      sync.Mutex // guards the fields below
	samples []sample
}

// Start starts to measure, until End.
func Start() *Meter {
	m := &Meter{done: make(chan struct{})}
	m.ended.Go(m.run)
	return m
}

// Fixed is a meter with one delay at all times, for tests.
func Fixed(delay time.Duration) *Meter { return &Meter{fixed: delay} }

// End stops measuring and keeps the samples.
func (m *Meter) End() {
	close(m.done)
	m.ended.Wait()
}

func (m *Meter) run() {
	runtime.LockOSThread() // threadTime reads this thread's processor time
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

// threadTime is the processor time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return time.Duration(time.Now().UnixNano()) // shows no load
	}
	return time.Duration(t.Nano())
}

// hops is the number of programs that run one after the other before an event of a termination is observed: the
// kubelet, a hook, the sidecar, the app or the gateway.
const hops = 4

// Most is the longest Allowance. With more, a bound of 50 ms would not be one.
const Most = 500 * time.Millisecond

// Allowance is how much later than on a quiet machine an event may be, between these two times. If programs waited so
// long that this exceeds Most, isEnough is false: an event that is too late may be so because of the machine.
func (m *Meter) Allowance(began, seen time.Time) (allowance time.Duration, isEnough bool) {
	needed := hops * m.Worst(began, seen)
	return min(needed, Most), needed <= Most
}

// Note is a sentence about a busy machine; empty for a quiet one.
func Note(allowance time.Duration) string {
	if allowance < 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf("The machine was busy: times were judged with up to %.1f s more.", allowance.Seconds())
}

// Worst is the longest delay between two times. A nil meter has none.
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
