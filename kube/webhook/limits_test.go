package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLargeReviews: they leave four fifths of the time to others, and those that are small need not wait.
func TestLargeReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		const large, small = smallValues + 1, 1
		leave, ok := l.slot(t.Context(), 0, large)
		if !ok {
			t.Fatal("the first one has to wait")
		}
		time.Sleep(10 * time.Millisecond)
		leave()
		began := time.Now()
		leave, ok = l.slot(t.Context(), 0, small)
		if !ok || time.Since(began) != 0 {
			t.Errorf("a small review waited %v", time.Since(began))
		}
		leave()
		if leave, ok = l.slot(t.Context(), 0, large); !ok || time.Since(began) != 40*time.Millisecond {
			t.Errorf("the second large one waited %v, want 40ms", time.Since(began))
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := l.slot(hurried, 0, large); ok {
			t.Error("two large ones at once")
		}
		leave()
		synctest.Wait()
	})
}
