package drain_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// A stop signal within a second of the first one is the same, however many come.
func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q drain.Requests
		for _, step := range []struct {
			after time.Duration
			want  bool
		}{{0, false}, {0, true}, {time.Millisecond, true}, {998 * time.Millisecond, true}, {time.Millisecond, false}, {0, false}} {
			time.Sleep(step.after)
			if got := !q.Send(drain.Terminate); got != step.want {
				t.Errorf("%v later: %v", step.after, got)
			}
		}
	})
}
