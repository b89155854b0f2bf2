package webhook

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestShares(t *testing.T) {
	s := newShares(128)
	count := func(address string) (n int) {
		for s.take(address, 1) {
			n++
		}
		return n
	}
	// However many there are, the next finds something.
	if a, b, c := count("a"), count("b"), count("c"); a != 64 || b != 32 || c != 16 {
		t.Errorf("shares of %d, %d, %d", a, b, c)
	}
	s.give("a", 64)
	if _, known := s.held["a"]; known {
		t.Error("an address that holds nothing is remembered")
	}
	if !s.take("d", 20) || s.take("d", 1000) {
		t.Error("what has been given back cannot be taken, or more than there is")
	}
}

func TestSharesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShares(2)
		if !s.take("a", 1) {
			t.Fatal("the first one waits")
		}
		short, cancel := context.WithCancel(t.Context())
		results := make(chan string, 3)
		wait := func(ctx context.Context, address string) {
			go func() {
				if s.wait(ctx, address) {
					results <- address
				} else {
					results <- address + " gave up"
				}
			}()
			synctest.Wait()
		}
		wait(short, "a")
		wait(t.Context(), "a")
		cancel()
		if got := <-results; got != "a gave up" {
			t.Error(got)
		}
		s.give("a", 1)
		if got := <-results; got != "a" || len(s.waiting) != 0 || s.free != 1 {
			t.Errorf("%s; %d wait, %d free", got, len(s.waiting), s.free)
		}
	})
}

// TestLargeReviews: they leave four fifths of the time to others, and those that are small need not wait.
func TestLargeReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		large, small := &review{from: "a", values: smallValues + 1}, &review{from: "a"}
		leave, ok := l.slot(t.Context(), large)
		if !ok {
			t.Fatal("the first one has to wait")
		}
		time.Sleep(10 * time.Millisecond)
		leave()
		began := time.Now()
		leave, ok = l.slot(t.Context(), small)
		if !ok || time.Since(began) != 0 {
			t.Errorf("a small review waited %v", time.Since(began))
		}
		leave()
		if leave, ok = l.slot(t.Context(), large); !ok || time.Since(began) != 40*time.Millisecond {
			t.Errorf("the second large one waited %v, want 40ms", time.Since(began))
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := l.slot(hurried, large); ok {
			t.Error("two large ones at once")
		}
		leave()
		synctest.Wait()
	})
}
