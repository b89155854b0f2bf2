package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// textRoom is how much of a field of a request is kept for the access log, bytes: a part of the memory that open
// requests have left, so that all of them together never hold more.
func (p *Pipe) textRoom() int {
	left := min(p.streamsLeft(), p.budget.Limit()-p.budget.Held())
	return int(max(left/64, maxBrief))
}

// newEntry begins the access log entry of a request; without a log it returns nil. h is nil if there is no HTTP/1 head.
func (p *Pipe) newEntry(c *conn, h *http1.Head, raw []byte) *accesslog.Entry {
	if p.cfg.AccessLog == nil {
		return nil
	}
	e := &accesslog.Entry{
		Began: time.Now(), Protocol: "HTTP/1.1", Cluster: "inbound", Route: "default",
		Downstream: c.client.RemoteAddr().String(), DownstreamLocal: c.client.LocalAddr().String(),
		Upstream: c.appName(),
	}
	if hello := c.hello.Load(); hello != nil {
		e.HasTLS = true
		e.TLSVersion, e.ServerName, e.ALPN, e.PeerSubject = hello.Version, hello.ServerName, hello.ALPN, hello.Peer
	}
	if c.app != nil {
		e.UpstreamLocal = c.app.LocalAddr().String()
	}
	if h != nil {
		most := p.textRoom()
		text := func(b []byte) string { return string(b[:min(len(b), most)]) }
		field := func(name string) string { return text(http1.Field(raw, name)) }
		e.Method, e.Path = text(h.Method), text(h.Target)
		if h.Minor == 0 {
			e.Protocol = "HTTP/1.0"
		}
		if h.Body.Kind == http1.LengthBody {
			e.Received = h.Body.Left
		}
		e.ForwardedFor, e.UserAgent = field("x-forwarded-for"), field("user-agent")
		e.RequestID, e.Authority = field("x-request-id"), field("host")
	}
	return e
}

// writeEntry writes the line of a request that has ended. e may be nil.
func (p *Pipe) writeEntry(e *accesslog.Entry, status int, outcome accesslog.Outcome) {
	if e == nil {
		return
	}
	e.Status, e.Outcome = status, outcome
	before := p.cfg.AccessLog.Lost()
	p.cfg.AccessLog.Write(e)
	if p.cfg.AccessLog.Lost() != before {
		p.warnEvery(time.Minute, "access log writer too slow; dropping lines")
	}
}

// logOpaque writes the line of a connection that has ended and is opaque or a database's, as Envoy's TCP proxy does.
func (c *conn) logOpaque() {
	if c.p.cfg.AccessLog == nil || c.mode != opaque && c.db == nil || len(c.up.upgraded) > 0 {
		return
	}
	e := c.p.newEntry(c, nil, nil)
	e.Began, e.Protocol = c.began, ""
	if c.mode == modeDatabase {
		e.Protocol = c.db.name
	}
	e.Received, e.Sent = c.up.carried, c.down.carried
	var outcome accesslog.Outcome
	switch {
	case c.overLimit:
		outcome.Flags = accesslog.FlagOverflow
	case c.app == nil:
		outcome.Flags = accesslog.FlagConnectFailed
	}
	c.p.writeEntry(e, 0, outcome)
}

// LogLost is the number of access log lines that were dropped; false without an access log.
func (p *Pipe) LogLost() (uint64, bool) {
	if p.cfg.AccessLog == nil {
		return 0, false
	}
	return p.cfg.AccessLog.Lost(), true
}

// Stats returns the counters of all listeners together, since the start.
func (p *Pipe) Stats() counters.Stats {
	var sum counters.Stats
	for _, l := range p.listeners {
		l.stats.AddTo(&sum)
	}
	return sum
}

// Unfinished is how many bytes unfinished requests hold, and may hold.
func (p *Pipe) Unfinished() (held, limit int64) { return p.budget.Held(), p.budget.Limit() }

// Durations returns the histograms of listener i that are not empty.
func (p *Pipe) Durations(i int) []counters.Durations { return p.listeners[i].stats.Durations.List() }
