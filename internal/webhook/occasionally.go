package webhook

import (
	"sync/atomic"
	"time"
)

// occasionally runs something at most once a second, so that no client fills the log. The metrics count
// what is left out.
type occasionally struct{ next atomic.Int64 }

func (o *occasionally) do(f func()) {
	now := time.Now().UnixNano()
	if next := o.next.Load(); now >= next && o.next.CompareAndSwap(next, now+int64(time.Second)) {
		f()
	}
}
