package pipe

import (
	"log/slog"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// opaqueInterval is the shortest interval between two log lines about a kind of opaque connection.
const opaqueInterval = 10 * time.Minute

// noteOpaque counts a connection that is passed through as bytes, and logs it if the configuration does not require it.
func (c *conn) noteOpaque(kind counters.Opaque) {
	c.in.stats.Opaque[kind].Add(1)
	if kind == counters.OpaqueTCP || kind == counters.OpaqueTLS {
		return
	}
	msg := "opaque connection (" + kind.String() + "): busy while open, HTTP limits do not apply"
	c.p.throttle.Log(c.p.cfg.Log, slog.LevelInfo, opaqueInterval, msg, "listener", c.in.Listen,
		"from", c.client.RemoteAddr().String())
}
