package service

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The list changes after the delay, and not before.
func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var published atomic.Pointer[[]string]
		now := func() []string { return *published.Load() }
		began := time.Now()
		e := newEndpoints(func() time.Duration { return 4 * time.Second }, []string{"a", "b"}, func(l []string) { published.Store(&l) })
		e.replace(t.Context(), "a", "c")
		time.Sleep(4*time.Second - 1)
		synctest.Wait()
		if !slices.Equal(now(), []string{"a", "b"}) {
			t.Errorf("before the delay %v", now())
		}
		e.wait()
		if took := time.Since(began); took != 4*time.Second || !slices.Equal(now(), []string{"b", "c"}) {
			t.Errorf("%v after %v", now(), took)
		}
	})
}
