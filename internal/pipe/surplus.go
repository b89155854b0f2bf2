package pipe

import (
	"errors"
	"net"

	"github.com/lastcall-dev/lastcall/internal/accesslog"
)

// What is beyond MaxConnections is taken and told so, instead of waiting in the
// kernel's queue where nobody sees it: HTTP gets a 503 for its first request, as
// Envoy's circuit breaker gives, without a connection to the app; everything else
// is closed. The replies, too, are limited.

// errSurplus is in place of a connection to the app.
var errSurplus = errors.New("the listener has as many connections as it may have")

// surplusReplies is how many connections of a listener may be waiting for their
// 503 at once; what comes beside is closed without one.
const surplusReplies = 64

// limit is how many connections the listener has at once; 0 for no limit.
func (l *listener) limit() int64 {
	if l.MaxConnections != 0 {
		return int64(max(0, l.MaxConnections))
	}
	return int64(max(0, l.p.cfg.MaxConnections))
}

// isSurplus says whether one connection more is too many. It is called by the
// accept loop only.
func (l *listener) isSurplus() bool {
	limit := l.limit()
	return limit > 0 && l.stats.open.Load()-l.stats.surplus.Load() >= limit
}

// refuseSurplus counts a connection beyond the limit, and closes it when it gets
// no reply. It returns whether it gets one.
func (l *listener) refuseSurplus(client *net.TCPConn) bool {
	l.stats.overflowed.Add(1)
	l.p.complain("a listener has as many connections as it may have; more are refused", "listener", l.Listen, "limit", l.limit(), "from", client.RemoteAddr().String())
	if l.Protocol == TCP || l.stats.surplus.Load() >= surplusReplies {
		_ = client.Close()
		return false
	}
	return true
}

// unreached is what the client is told when there is no connection to the app.
type unreached struct {
	reply   *reply
	outcome accesslog.Outcome
	ending  ending // of streams
}

var (
	unreachedApp     = unreached{&replyConnectFailed, accesslog.ConnectFailed, endRefused}
	unreachedRestart = unreached{&replyRestarting, accesslog.ConnectFailed, endRestarting}
	unreachedSurplus = unreached{&replyOverflow, accesslog.Overflow, endOverflow}
)

func (c *conn) whyUnreached() *unreached {
	switch {
	case c.surplus:
		return &unreachedSurplus
	case c.waitedOut:
		return &unreachedRestart
	}
	return &unreachedApp
}
