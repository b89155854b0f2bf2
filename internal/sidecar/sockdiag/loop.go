package sockdiag

import (
	"context"
	"time"
)

// Reports are destroyed sockets as the kernel reports them; see Watch.
type Reports interface {
	Gone() <-chan struct{}
	Ended() (sockets []Socket, lost bool)
	Close() error
}

// Loop reads the table again and again: after each report, and at intervals proportional to the cost of a look. With
// 262,144 buckets a look takes 0.45 ms, and waking up takes the same time again.
type Loop struct {
	Reports Reports // nil: the kernel does not report destroyed sockets, and only the intervals are left

	Share    int           // an interval is this many times the cost of a look,
	Min, Max time.Duration // within these bounds
	Pause    time.Duration // the shortest time from a look to one that a report causes

	Look func() // takes one look

	// Next returns the cost of a look, and when the caller needs the next one; zero: at the interval. It is called before
	// each wait.
	Next func() (cost time.Duration, wish time.Time)

	Recheck <-chan struct{} // makes the loop call Next again; nil: never
	Silent  func()          // is called when the kernel no longer reports

	stop context.CancelFunc
	done chan struct{}
}

// The bounds of an interval without reports: then looks are all that shows a change.
const (
	minBlind = 20 * time.Millisecond
	MaxBlind = 80 * time.Millisecond
)

// MaxShare bounds the looks that reports cause: one has MaxShare times its cost after it.
const MaxShare = 10

// minGap is between two looks whatever the caller wishes, so that a look that fails is not repeated at once.
const minGap = 5 * time.Millisecond

// Start begins to look, until ctx ends or Close is called.
func (l *Loop) Start(ctx context.Context) {
	ctx, l.stop = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		l.run(ctx)
	}()
}

// Close ends the loop and the reports.
func (l *Loop) Close() {
	l.stop()
	<-l.done
	if l.Reports != nil {
		_ = l.Reports.Close()
	}
}

// Ended are the sockets that were reported since the last call.
func (l *Loop) Ended() (sockets []Socket, lost bool) {
	if l == nil || l.Reports == nil {
		return nil, false
	}
	return l.Reports.Ended()
}

func (l *Loop) run(ctx context.Context) {
	var gone <-chan struct{}
	if l.Reports != nil {
		gone = l.Reports.Gone()
	}
	clock := time.NewTimer(0)
	defer clock.Stop()
	var looked time.Time
	for {
		cost, wish := l.Next()
		clock.Reset(time.Until(l.due(looked, cost, wish, gone == nil)))
		select {
		case <-l.Recheck:
			continue
		case _, open := <-gone:
			if !open {
				gone = nil
				l.Silent()
				continue
			}
			// One look for many ends.
			clock.Reset(time.Until(looked.Add(max(l.Pause, MaxShare*cost))))
			select {
			case <-clock.C:
			case <-ctx.Done():
				return
			}
		case <-clock.C:
		case <-ctx.Done():
			return
		}
		looked = time.Now()
		l.Look()
	}
}

// due is when to look next if nothing is reported.
func (l *Loop) due(looked time.Time, cost time.Duration, wish time.Time, blind bool) time.Time {
	low, high := l.Min, l.Max
	if blind {
		low, high = minBlind, MaxBlind
	}
	next := looked.Add(min(max(time.Duration(l.Share)*cost, low), high))
	if !wish.IsZero() && wish.Before(next) {
		next = wish
	}
	if soonest := looked.Add(max(minGap, MaxShare*cost)); next.Before(soonest) {
		return soonest
	}
	return next
}

// maxLeft bounds the sockets whose destruction is expected.
const maxLeft = 1 << 16

// Roll distinguishes, among destroyed sockets, those that an earlier look at the table has shown from those that were
// opened and closed between two looks. On a busy machine, where looks are late, the second kind is the rule.
//
// The caller keeps the sockets that it sees in the table, and reports those that have disappeared from it.
type Roll struct {
	left map[uint64]struct{} // seen, gone from the table, not yet reported as destroyed
}

// Left records a socket that an earlier look saw and the table no longer has.
func (r *Roll) Left(cookie uint64) {
	// An entry that stays costs memory; one that is dropped, one false arrival.
	if r.left == nil || len(r.left) >= maxLeft {
		r.left = make(map[uint64]struct{})
	}
	r.left[cookie] = struct{}{}
}

// Unseen reports whether no look has shown a destroyed socket. seen is true when the
// caller still has it among those that it sees.
func (r *Roll) Unseen(cookie uint64, seen bool) bool {
	if seen {
		return false
	}
	if _, ok := r.left[cookie]; ok {
		delete(r.left, cookie)
		return false
	}
	return true
}
