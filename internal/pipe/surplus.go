package pipe

import (
	"errors"
	"net"
)

// What is beyond MaxConnections is taken and told so, instead of waiting in the
// kernel's queue where nobody sees it: HTTP gets a 503 for its first request, as
// Envoy's circuit breaker gives, without a connection to the app; everything else
// is closed. The replies, too, are limited.

// errOverLimit is in place of a connection to the app.
var errOverLimit = errors.New("the listener has as many connections as it may have")

// maxOverLimit is how many connections of a listener may be waiting for their
// 503 at once; what comes beside is closed without one.
const maxOverLimit = 64

// limit is how many connections the listener has at once; 0 for no limit.
func (l *listener) limit() int64 {
	if l.MaxConnections != 0 {
		return int64(max(0, l.MaxConnections))
	}
	return int64(max(0, l.p.cfg.MaxConnections))
}

// isOverLimit says whether one connection more is too many. It is called by the
// accept loop only.
func (l *listener) isOverLimit() bool {
	limit := l.limit()
	return limit > 0 && l.stats.Open.Load()-l.stats.OverLimit.Load() >= limit
}

// refuseOverLimit counts a connection beyond the limit, and closes it when it gets
// no reply. It returns whether it gets one.
func (l *listener) refuseOverLimit(client *net.TCPConn) bool {
	l.stats.Overflowed.Add(1)
	l.p.warn("a listener has as many connections as it may have; more are refused", "listener", l.Listen, "limit", l.limit(), "from", client.RemoteAddr().String())
	if l.Protocol == TCP || l.stats.OverLimit.Load() >= maxOverLimit {
		_ = client.Close()
		return false
	}
	return true
}
