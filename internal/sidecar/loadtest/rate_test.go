package loadtest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Requests are sent when they are due, however long earlier ones take, until too many are unanswered.
func TestAtRate(t *testing.T) {
	for _, tt := range []struct {
		lasting, takes time.Duration
		fails          bool
		want           string
	}{
		{time.Second, 3 * time.Second, false, "0 of 10 failed"},
		{time.Second, 0, true, "10 of 10 failed; 10 × refused"},
		{time.Minute, time.Hour, false, "1 of 100 failed; 1 × ended: the machine does not carry 10 requests/s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), tt.lasting-time.Millisecond)
			defer stop()
			got := AtRate(ctx, 10, func(int) (why string) {
				time.Sleep(tt.takes)
				if tt.fails {
					why = "refused"
				}
				return why
			})
			if got.String() != tt.want {
				t.Errorf("%v of requests of %v: %v, want %s", tt.lasting, tt.takes, got, tt.want)
			}
		})
	}
}
