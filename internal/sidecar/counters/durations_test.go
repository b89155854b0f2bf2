package counters

import (
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		want float64 // the bound of its bucket; 0 for the one beyond
	}{
		{-time.Second, 0.0005}, {0, 0.0005}, {500 * time.Microsecond, 0.0005}, {500*time.Microsecond + 1, 0.001},
		{time.Millisecond, 0.001}, {time.Millisecond + 1, 0.002}, {4 * time.Millisecond, 0.004}, {time.Second, 1.024},
		{131072 * time.Millisecond, 131.072}, {131072*time.Millisecond + 1, 0}, {time.Hour, 0},
	} {
		i := bucketOf(c.took)
		switch {
		case i == len(Bounds) && c.want != 0, i < len(Bounds) && Bounds[i] != c.want:
			t.Errorf("%v is in bucket %d of %v, want that of %v", c.took, i, Bounds, c.want)
		}
	}
}
