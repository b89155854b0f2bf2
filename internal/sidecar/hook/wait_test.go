package hook

import (
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/timers"
)

func TestDeadlines(t *testing.T) {
	c := drain.DefaultConfig()
	for _, tt := range []struct {
		config drain.Config
		want   time.Duration
	}{
		{Until(c, timers.DefaultLeave), 25 * time.Second},
		{Until(c, time.Second), 29 * time.Second},
		{Until(c, 20*time.Second), 22500 * time.Millisecond},
		{Within(c, 20*time.Second), 20 * time.Second},
		{Within(c, time.Second), time.Second},
		{Within(c, time.Hour), time.Hour},
		{Within(c, 1), 1},
	} {
		if got, _ := tt.config.Limit(); tt.config.Validate() != nil || got != tt.want {
			t.Errorf("%v, %v; want %v", got, tt.config.Validate(), tt.want)
		}
	}
}
