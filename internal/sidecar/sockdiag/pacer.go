package sockdiag

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Pacer shares processor time among readers of tables: a look walks the sockets of the whole machine, whatever
// namespace it is for, so a part of a core for each reader would add up.
type Pacer struct {
	Share time.Duration // the reciprocal of the part of a core that all take together
	costs atomic.Int64  // of the last look of each reader, ns
}

// Part is one reader's.
type Part struct {
	Of   *Pacer
	cost time.Duration
}

// Pause takes the cost of the reader's last look, 0 if it takes no more, and returns how long it has to wait until the
// next one, in which each of the others may look once.
func (p *Part) Pause(cost time.Duration) time.Duration {
	all := p.Of.costs.Add(int64(cost - p.cost))
	p.cost = cost
	return p.Of.Share * time.Duration(all)
}

// Measure returns the processor time that work takes, in which the wait for a busy machine is not.
func Measure(work func()) time.Duration {
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
