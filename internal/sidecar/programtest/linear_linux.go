package programtest

import (
	"syscall"
	"testing"
	"time"
)

// Linear asserts that ten times n objects take about ten times the processor time, not a hundred times: at most 30
// times. prepare returns the work on so many, which alone is measured. Both are measured in one process, and its own
// time does not depend on other processes.
func Linear(t *testing.T, n int, prepare func(n int) (work func())) {
	t.Helper()
	of := func(n int) time.Duration {
		work := prepare(n)
		before := processorTime(t)
		work()
		return processorTime(t) - before
	}
	of(n / 2) // for what happens once
	small, large := of(n), of(10*n)
	t.Logf("%d objects: %v, %d: %v", n, small, 10*n, large)
	if large > 30*small {
		t.Errorf("ten times the objects take %.0f times as long", large.Seconds()/small.Seconds())
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()) // only the sum is exact: ticks divide it
}
