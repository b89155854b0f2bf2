package spread

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestOver(t *testing.T) {
	for _, tt := range []struct {
		name                string
		n                   int
		least, window, want time.Duration
	}{
		{"few at the last call", 3, 440 * time.Millisecond, 880 * time.Millisecond, 440 * time.Millisecond},
		{"many at the last call", 5000, 440 * time.Millisecond, 880 * time.Millisecond, 660 * time.Millisecond},
		{"many at a long last call", 5000, 5 * time.Second, 20 * time.Second, 10 * time.Second},
		{"few early", 10, time.Second, 18 * time.Second, time.Second},
		{"many early", 5000, time.Second, 18 * time.Second, 10 * time.Second},
		{"more than the time allows", 50_000, time.Second, 18 * time.Second, 13500 * time.Millisecond},
		{"no time is left", 5000, time.Second, 0, time.Second},
		{"none", 0, time.Second, time.Minute, time.Second},
	} {
		if got := Over(tt.n, tt.least, tt.window); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		n          int
		over, want time.Duration
	}{
		{100, time.Second, 0}, {5000, 10 * time.Second, 0},
		{5000, 660 * time.Millisecond, 9340 * time.Millisecond}, {1_000_000, time.Second, maxRetry},
	} {
		if got := Retries(tt.n, tt.over); got != tt.want {
			t.Errorf("%d over %v: %v, want %v", tt.n, tt.over, got, tt.want)
		}
	}
}

// Within no 100 ms there are more ends than the rate allows, and the last one is in time.
func TestEach(t *testing.T) {
	for _, n := range []int{1, 7, 500, 5000} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ends := map[int]int{} // by 100 ms
			all := make([]int, n)
			for i := range all {
				all[i] = i
			}
			Each(t.Context(), began, Over(n, time.Second, time.Minute), all, func(i int) {
				if at := time.Since(began); at < At(i, n, Over(n, time.Second, time.Minute))-time.Millisecond {
					t.Errorf("end %d after %v", i, at)
				}
				ends[int(time.Since(began)/(100*time.Millisecond))]++
			})
			total := 0
			for at, count := range ends {
				if total += count; count > PerSecond/10+1 {
					t.Errorf("%d of %d ends in the 100 ms from %d00 ms", count, n, at)
				}
			}
			if took := time.Since(began); total != n || took > Over(n, time.Second, time.Minute) {
				t.Errorf("%d of %d ends in %v", total, n, took)
			}
		})
	}
}

// When the context ends, the rest follows at once.
func TestEachIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began, ends := time.Now(), 0
		Each(ctx, began, 10*time.Second, make([]int, 100), func(int) { ends++ })
		if took := time.Since(began); took != time.Second || ends != 100 {
			t.Errorf("%d ends in %v", ends, took)
		}
	})
}
