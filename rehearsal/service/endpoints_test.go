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
		publish := func(list []string) { published.Store(&list) }
		e := newEndpoints(func() time.Duration { return 4 * time.Second }, []string{"a", "b"}, publish)
		go e.replace(t.Context(), "a", "c")
		time.Sleep(4*time.Second - time.Millisecond)
		synctest.Wait()
		if !slices.Equal(now(), []string{"a", "b"}) {
			t.Errorf("before the delay %v", now())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !slices.Equal(now(), []string{"b", "c"}) {
			t.Errorf("after the delay %v", now())
		}
	})
}
