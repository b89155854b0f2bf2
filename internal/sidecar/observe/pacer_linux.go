package observe

import (
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// pacer shares processor time among looks: a look walks the socket table of the whole machine, whatever namespace it is
// for, so a part for each would add up. It is safe for concurrent use.
type pacer struct {
	share time.Duration // the reciprocal of the part of a core that all take together

	mu   sync.Mutex
	free time.Time // when everything until now is paid
}

// Those of all watches of the process: looks after Begin, and scans of the listeners on standby.
var (
	looks = pacer{share: 20}
	scans = pacer{share: 1000}
)

// reserve pays for work that ended at now, and returns the earliest time of the next look of the watch that did it.
// Watches that look in turn get equal parts, and what one does not use is the others'.
func (p *pacer) reserve(now time.Time, cost time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = later(p.free, now).Add(p.share * cost)
	return p.free
}

// paid is when everything until now is paid.
func (p *pacer) paid() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// measure returns the processor time that work takes, in which the wait for a busy machine is not.
func measure(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := threadTime()
	work()
	return threadTime() - from
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // it has no error for the own thread
	return time.Duration(t.Nano())
}
