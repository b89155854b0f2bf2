package main

import (
	"runtime/debug"
	"testing"
)

// GOMEMLIMIT holds where no control group has a lower limit.
func TestMemoryLimit(t *testing.T) {
	unlimited := memoryLimit()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1 << 20))
	if got := memoryLimit(); got != 1<<20 {
		t.Errorf("%d bytes, and %d without GOMEMLIMIT; want %d", got, unlimited, 1<<20)
	}
}
