package webhook

import (
	"context"
	"testing"
	"testing/synctest"
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
