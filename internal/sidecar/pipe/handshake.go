package pipe

import (
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/budget"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// handshakeContinues is called when so many bytes of the client's handshake have come. It returns false if the
// connection has to end for the memory's sake.
func (u *up) handshakeContinues(received int, isFirst bool) bool {
	c := u.c
	if isFirst { // it makes the connection busy until the timeout: a client that begins a handshake has a request
		c.mu.Lock()
		if c.arriving = !c.end.done(); c.arriving {
			_ = c.client.SetDeadline(time.Now().Add(c.in.tls.Timeout))
		}
		c.recountLocked()
		c.mu.Unlock()
	}
	held := handshakeMemory + received/4*5 // a buffer that has grown
	return c.p.budget.Hold(&c.share, held, budget.Unfinished(held))
}

// handshake returns false if the connection has ended.
func (u *up) handshake() bool {
	c := u.c
	info, silent, err := c.client.Handshake()
	if err != nil {
		u.handshakeFailed(err, silent)
	}
	c.holdsNothing()
	if err != nil {
		return false
	}
	c.in.tls.Succeeded(info.Resumed)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hello.Store(info)
	c.growsLocked()
	if c.end.done() {
		return false // ended meanwhile; cleanUp sends close_notify
	}
	_ = c.client.SetDeadline(time.Time{})
	c.arriving = false
	c.in.beginLocked(c)
	c.recountLocked()
	return true
}

// handshakeFailed counts the reason and lets the alert of crypto/tls reach the client. A silent client that disconnects
// is a port probe and does not count.
func (u *up) handshakeFailed(err error, silent bool) {
	c := u.c
	reason := tlsserver.ReasonOf(err)
	if c.share.IsEvicted() {
		c.countEvicted(counters.EvictedHandshake)
		reason = tlsserver.Overloaded
	}
	if !c.hasEnded() && !(silent && reason == tlsserver.ClientGone) {
		c.in.tls.Failed(reason)
		from := c.client.RemoteAddr().String()
		c.p.cfg.Log.Debug("TLS handshake failed", "listener", c.in.Listen, "from", from, "reason", reason.String(),
			"error", err)
		if reason.IsConfiguration() {
			c.p.warnEvery(time.Minute, "TLS handshakes fail; see the debug log for each and the metrics for counts by reason",
				"listener", c.in.Listen, "latest_from", from, "reason", reason.String(), "error", err)
		}
	}
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok && record.Conn != nil &&
		slices.Contains(requestBeginnings, string(record.RecordHeader[:])) {
		// As net/http does; unencrypted, since the client does not use TLS.
		_ = c.client.SetWriteDeadline(time.Now().Add(lingerTime))
		_ = c.client.SendClear(replyBytes(&accesslog.Reply{Status: 400,
			Body: "the client sent an HTTP request to an HTTPS port"}, false), true)
	}
	c.endBy(onClientGone)
	if !silent && reason != tlsserver.Overloaded { // read on, so that no reset overtakes the alert
		_, _ = io.Copy(io.Discard, c.client)
	}
}

// requestBeginnings are those of a request that comes instead of a TLS record.
var requestBeginnings = []string{"GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO"}
