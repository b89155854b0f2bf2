package rehearsal

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	samplePeriod = 100 * time.Millisecond
	sampleNap    = 10 * time.Millisecond // to measure how late a wake-up is
	sampleWork   = 3 * time.Millisecond  // to measure how long work waits once its time slice has ended
)

// delayed is how long one nap and its work took longer.
type delayed struct {
	at    time.Time // its end
	delay time.Duration
}

// cpuWait measures how long programs on this machine wait for a processor, until end, so that a rehearsal on a busy
// machine is not judged by the machine's load.
type cpuWait struct {
	done  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	samples []delayed
}

// startCPUWait starts to measure, until end.
func startCPUWait() *cpuWait {
	m := &cpuWait{done: make(chan struct{})}
	m.ended.Go(m.run)
	return m
}

// end stops measuring and keeps the samples.
func (m *cpuWait) end() {
	close(m.done)
	m.ended.Wait()
}

func (m *cpuWait) run() {
	runtime.LockOSThread() // threadTime reads this thread's processor time
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		s := sampleCPUWait()
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

func sampleCPUWait() delayed {
	began := time.Now()
	time.Sleep(sampleNap)
	from := threadTime()
	worked := time.Duration(0)
	for worked < sampleWork {
		for range 1000 {
		}
		worked = threadTime() - from
	}
	at := time.Now()
	return delayed{at, max(0, at.Sub(began)-sampleNap-worked)}
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

// maxAllowance is the longest allowance. With more, a bound of 50 ms would not be one.
const maxAllowance = 500 * time.Millisecond

// allowance is how much later than on a quiet machine an event may be, between these two times. If programs waited so
// long that this exceeds maxAllowance, isEnough is false: an event that is too late may be so because of the machine.
func (m *cpuWait) allowance(began, seen time.Time) (most time.Duration, isEnough bool) {
	needed := hops * m.worst(began, seen)
	return min(needed, maxAllowance), needed <= maxAllowance
}

// busyNote is a sentence about a busy machine; empty for a quiet one.
func busyNote(allowance time.Duration) string {
	if allowance < 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf("The machine was busy: times were judged with up to %.1f s more.", allowance.Seconds())
}

// worst is the longest delay between two times. A nil one has none.
func (m *cpuWait) worst(from, to time.Time) (longest time.Duration) {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.samples {
		if s.at.After(from) && s.at.Add(-s.delay).Before(to) {
			longest = max(longest, s.delay)
		}
	}
	return longest
}
