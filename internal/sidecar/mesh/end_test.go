package mesh

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
)

// Envoy serves the app's outbound connections until each of its containers has exited: those with our hook, which leave a
// process, and those without it, whose sockets show them. Istio-proxy's hook has waited for 10 s when this begins.
func TestAwaitApp(t *testing.T) {
	const second = time.Second
	for _, tt := range []struct {
		name    string
		hooks   time.Duration // until which containers with our hook run; 0: none came
		sockets time.Duration // until which other containers have sockets
		err     error
		want    time.Duration
	}{
		{name: "a gateway's pod has no app", want: 0},
		{name: "one container, which takes 3 s", hooks: 3 * second, sockets: 3 * second, want: 3*second + appGone},
		{name: "a second container without our hook works for 15 s", hooks: 2 * second, sockets: 15 * second, want: 15*second + appGone},
		{name: "a container without a socket", hooks: 4 * second, want: 4 * second},
		{name: "no hook came: sockets show the app", sockets: 5 * second, want: 5*second + appGone},
		{name: "an app that never exits: the deadline", hooks: 100 * second, want: 19 * second},
		{name: "another native sidecar, which ends after istio-proxy: the deadline", hooks: second, sockets: 100 * second, want: 19 * second},
		{name: "sockets cannot be attributed: the hooks alone", hooks: 3 * second, err: errors.New("denied"), want: 3 * second},
		{name: "nothing can be seen: no wait", err: errors.New("denied"), want: 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				h := &Hook{config: drain.DefaultConfig(), began: began.Add(-10 * second), containers: &containers{}, o: Options{Log: slog.New(slog.DiscardHandler)}}
				h.others = func() (int, error) {
					if tt.err == nil && time.Since(began) < tt.sockets {
						return 1, nil
					}
					return 0, tt.err
				}
				if tt.hooks > 0 {
					h.containers.connected.Store(1)
					h.containers.running.Store(1)
					time.AfterFunc(tt.hooks, func() { h.containers.running.Store(0) })
				}
				h.awaitApp(t.Context(), h.endBy())
				if took := time.Since(began); took < tt.want-appLook || took > tt.want+2*appLook {
					t.Errorf("%v; want %v", took, tt.want)
				}
			})
		})
	}
}
