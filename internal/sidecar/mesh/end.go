package mesh

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
	"github.com/lastcall-dev/lastcall/internal/sidecar/hook"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// End is what follows the report. An app's hook makes Envoy write its access log, because Istio's agent ends Envoy by
// SIGKILL, which loses the lines of the last second. Envoy's own waits until the app has exited, so that its outbound
// connections work to the end, and then ends Envoy, which writes its whole log.
func (h *Hook) End(ctx context.Context) {
	if h.conn != nil {
		if h.usable {
			short, cancel := context.WithTimeout(ctx, hook.EnvoyEnd)
			defer cancel()
			if err := h.admin.Post(short, "/reopen_logs"); err != nil {
				h.o.Log.Warn("cannot make Envoy write its access log", "error", err)
			}
		}
		if err := h.conn.leave(h.o.Stay); err != nil {
			h.o.Log.Warn("the sidecar does not know when this container ends", "error", err)
		}
		return
	}
	if h.containers != nil {
		h.awaitApp(ctx, h.endBy())
		defer h.containers.close()
	}
	if !h.usable {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hook.EnvoyEnd)
	defer cancel()
	if err := h.admin.QuitAndWait(ctx); err != nil {
		h.o.Log.Warn("cannot end Envoy", "error", err)
	}
}

// endBy is when Envoy has to be ended, before the kubelet's SIGKILL.
func (h *Hook) endBy() time.Time {
	return h.began.Add(h.config.GracePeriod - min(hook.EnvoyEnd, h.config.GracePeriod/8))
}

const (
	appLook = 20 * time.Millisecond  // how often awaitApp looks
	appGone = 100 * time.Millisecond // how long the other containers must have had no socket
)

// awaitApp returns when the pod's app has exited: the containers whose hooks have come have ended, and no other
// container has a socket. A gateway's pod has neither.
func (h *Hook) awaitApp(ctx context.Context, by time.Time) {
	ctx, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	began := time.Now()
	h.o.Log.Info("inbound drained; outbound connections stay open until the app exits")
	var seen time.Time
	var running, connected int32
	var sockets int
	var err error
	if poll.Until(ctx, appLook, func() bool {
		running, connected = h.containers.running.Load(), h.containers.connected.Load()
		if sockets, err = h.others(); sockets > 0 {
			seen = time.Now()
		}
		return running == 0 && time.Since(seen) >= appGone
	}) != nil {
		h.o.Log.Warn("app still running at the deadline; ending Envoy", "containers", running, "sockets", sockets)
		return
	}
	if err != nil && connected == 0 {
		h.o.Log.Warn("cannot see whether the app still runs; not waiting for it", "error", err,
			"hint", "add lastcall wait --envoy as the preStop hook of every app container")
	}
	h.o.Log.Info("app exited", "containers", connected, "after", time.Since(began).Round(time.Millisecond))
}

// otherSockets counts the sockets of the pod's other containers.
func otherSockets() (int, error) {
	table, err := sockdiag.OpenTable()
	if err != nil {
		return 0, err
	}
	defer table.Close()
	return table.OfOtherContainers()
}
