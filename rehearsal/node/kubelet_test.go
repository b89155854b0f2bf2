package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/podend"
)

// Terminate meets more than a course has: hooks that fail or hang, containers that end by themselves, and an end of the
// rehearsal.
func TestTerminate(t *testing.T) {
	hang := Func(func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
	fails := Func(func(context.Context) error { return errors.New("exit 1") })
	const sec = time.Second
	for _, tt := range []struct {
		name         string
		hook         Hook
		self, broken time.Duration // when the container ends by itself, and the termination is broken off; zero: never
		want         string
	}{
		{"a preStop that hangs has the grace period", hang, 0, 0, "TERM 10s, gone 11s"},
		{"a preStop that fails stops nothing", fails, 0, 0, "TERM 0s, gone 1s"},
		{"a container that ends during its preStop gets no signal", hang, 3 * sec, 0, "gone 3s"},
		{"a termination that is broken off kills", Sleep(8 * sec), 0, 3 * sec, "KILL 3s, gone 3s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := &member{Container: podend.Container{Reaction: podend.FixedDrain, Drain: sec}, done: make(chan struct{})}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.self > 0 {
					time.AfterFunc(tt.self, func() { _ = m.Kill() })
				}
				if tt.broken > 0 {
					time.AfterFunc(tt.broken, cancel)
				}
				e := Terminate(ctx, []Member{{m, tt.hook, false}}, 10*sec)[0]
				var got []string
				for _, act := range []struct {
					name string
					at   time.Time
				}{{"TERM", e.Terminated}, {"KILL", e.Killed}, {"gone", e.Gone}} {
					if !act.at.IsZero() {
						got = append(got, fmt.Sprint(act.name, " ", act.at.Sub(began)))
					}
				}
				if got := strings.Join(got, ", "); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
			})
		})
	}
}
