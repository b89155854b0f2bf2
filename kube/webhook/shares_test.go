package webhook

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestShares: however many addresses hold everything, the next one gets some: from the address with the most, its oldest.
func TestShares(t *testing.T) {
	s := newShares(128)
	var ended []string
	open := func(from string, i int) *share {
		return s.open(from, func() { ended = append(ended, fmt.Sprint(from, i)) })
	}
	fill := func(from string) (all []*share) {
		for i := 0; ; i++ {
			h := open(from, i)
			if !h.take(1) {
				return all
			}
			all = append(all, h)
		}
	}
	a := fill("a")
	if len(a) != 128 || len(ended) != 0 {
		t.Errorf("alone it got %d of 128, and %q ended", len(a), ended)
	}
	b := fill("b")
	if len(b) != 64 || len(ended) != 64 || ended[0] != "a0" || ended[63] != "a63" {
		t.Errorf("the second address got %d; %q ended", len(b), ended)
	}
	for i := range 8 {
		if got := len(fill(fmt.Sprint("c", i))); got == 0 {
			t.Errorf("the address %d got nothing", i+3)
		}
	}
	ended = nil
	quiet := open("quiet", 0)
	if !quiet.take(4) || len(ended) != 4 || quiet.wasEnded() {
		t.Errorf("a quiet address got nothing; %q ended", ended)
	}
	if open("quiet", 1).take(1000) {
		t.Error("an address got more than there is")
	}
	if !a[0].wasEnded() || a[0].take(1) {
		t.Error("a share that was ended can grow")
	}
	for _, h := range s.held {
		for len(h.all) > 0 {
			h.all[0].give()
		}
	}
	if len(s.held) != 0 || s.free != 128 {
		t.Errorf("%d are free, and %d addresses that hold nothing are remembered", s.free, len(s.held))
	}
}

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
