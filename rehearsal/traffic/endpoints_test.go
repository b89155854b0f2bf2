package traffic

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// The list changes after the delay, and not before.
func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now []string
		began := time.Now()
		e := NewEndpoints(func() time.Duration { return 4 * time.Second }, []string{"a", "b"}, func(l []string) { now = l })
		e.Replace(t.Context(), "a", "c")
		time.Sleep(4*time.Second - 1)
		synctest.Wait()
		if !slices.Equal(now, []string{"a", "b"}) {
			t.Errorf("before the delay %v", now)
		}
		e.Wait()
		if took := time.Since(began); took != 4*time.Second || !slices.Equal(now, []string{"b", "c"}) {
			t.Errorf("%v after %v", now, took)
		}
	})
}
