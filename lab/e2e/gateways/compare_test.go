//go:build e2e

package gateways

import (
	"testing"
	"time"
)

// compare measures both gateways. Theirs is only logged; ours may lose nothing, and an idle client may not hold it.
func compare(t *testing.T, theirs *gateway, theirService string, ours *gateway, ourService string) {
	for name, idle := range map[string]bool{"ending": false, "idle": true} {
		t.Run(name, func(t *testing.T) {
			theirs.ending(t, idle)
			for _, e := range ours.ending(t, idle) {
				if e.status != "HTTP/1.1 200 OK" {
					t.Errorf("the request in flight got %q; the report is %s", e.status, e.report)
				}
				if e.envoy < 0 || e.envoy > 10*time.Second {
					t.Errorf("Envoy has exited %v after the last byte; the report is %s", e.envoy, e.report)
				}
			}
		})
	}
	t.Run("restarts", func(t *testing.T) {
		r := restart(t, map[*gateway]string{theirs: theirService, ours: ourService})[ours]
		if requests, lost := r.total(); requests == 0 || lost > 0 {
			t.Errorf("%v", r)
		}
	})
}
