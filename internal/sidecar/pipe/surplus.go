package pipe

import (
	"errors"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// Connections beyond MaxConnections are accepted and answered instead of waiting invisibly in the kernel's queue: HTTP
// gets a 503 for its first request, as from Envoy's circuit breaker, without a connection to the app; other protocols
// are closed. The replies are limited, too.

// errOverLimit is returned in place of a connection to the app.
var errOverLimit = errors.New("connection limit reached")

// maxOverLimit is how many connections of a listener may wait for their 503; more are closed without one.
const maxOverLimit = 64

// limit is how many connections the listener may have; 0 for no limit.
func (l *listener) limit() int64 {
	if l.MaxConnections != 0 {
		return int64(max(0, l.MaxConnections))
	}
	return int64(max(0, l.p.cfg.MaxConnections))
}

// isOverLimit reports whether the next connection is beyond the limit. Only the accept loop calls it.
func (l *listener) isOverLimit() bool {
	limit := l.limit()
	return limit > 0 && l.stats.Open.Load()-l.stats.OverLimit.Load() >= limit
}

// refuseOverLimit counts a connection beyond the limit. It reports whether it gets a reply; else it is closed.
func (l *listener) refuseOverLimit(client *tcp.Socket) bool {
	l.stats.Overflowed.Add(1)
	l.p.warn("connection limit reached; refusing connections", "listener", l.Listen, "limit", l.limit(),
		"from", client.RemoteAddr().String())
	if l.Protocol == TCP || l.stats.OverLimit.Load() >= maxOverLimit {
		_ = client.Close()
		return false
	}
	return true
}
