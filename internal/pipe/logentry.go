package pipe

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// logEntry is what the access log has to know of a request, or of an opaque
// connection. It is made only when there is a log.
type logEntry struct {
	began                                                time.Time
	method, path, protocol                               string // empty of an opaque connection
	forwardedFor, userAgent, requestID, authority        string
	upstream, upstreamLocal, downstream, downstreamLocal string
	received, sent                                       uint64
	firstByte                                            time.Time
	hello                                                *handshakeInfo // nil without TLS
}

// held is how many bytes the entry holds of what the client sent.
func (e *logEntry) held() int {
	return len(e.method) + len(e.path) + len(e.forwardedFor) + len(e.userAgent) + len(e.requestID) + len(e.authority)
}

// newEntry begins the entry of a request; without a log it is nil.
func (p *Pipe) newEntry(c *conn, h *head, raw []byte) *logEntry {
	if p.cfg.AccessLog == nil {
		return nil
	}
	e := &logEntry{
		began: time.Now(), protocol: "HTTP/1.1",
		downstream: c.client.RemoteAddr().String(), downstreamLocal: c.client.LocalAddr().String(),
		upstream: c.appName(), hello: c.hello.Load(),
	}
	if c.app != nil {
		e.upstreamLocal = c.app.LocalAddr().String()
	}
	if h != nil {
		e.method, e.path = string(h.method.of(raw)), string(h.target.of(raw))
		if h.minor == 0 {
			e.protocol = "HTTP/1.0"
		}
		if h.body.kind == lengthBody {
			e.received = h.body.left
		}
		e.forwardedFor = field(raw, "x-forwarded-for")
		e.userAgent = field(raw, "user-agent")
		e.requestID = field(raw, "x-request-id")
		e.authority = field(raw, "host")
	}
	return e
}

// writeEntry writes the line of a request that has ended. e may be nil.
func (p *Pipe) writeEntry(e *logEntry, status int, flags, details string) {
	if e == nil {
		return
	}
	before := p.cfg.AccessLog.Lost()
	p.cfg.AccessLog.add(e, status, flags, details)
	if p.cfg.AccessLog.Lost() != before {
		p.complainEach(time.Minute, "the access log is not written as fast as requests end; lines are lost and counted")
	}
}

// logOpaque writes the line of a connection that has ended and of which nothing
// was understood, as Envoy's TCP proxy does.
func (c *conn) logOpaque() {
	if c.p.cfg.AccessLog == nil || c.mode != opaque || len(c.up.upgraded) > 0 {
		return
	}
	e := c.p.newEntry(c, nil, nil)
	e.began, e.protocol = c.began, ""
	e.received, e.sent = c.up.carried, c.down.carried
	flags := ""
	switch {
	case c.surplus:
		flags = flagOverflow
	case c.app == nil:
		flags = flagConnectFailed
	}
	c.p.writeEntry(e, 0, flags, "")
}

// appendText writes
//
//	[%START_TIME%] "%METHOD% %PATH% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%
//	%CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT%
//	%DURATION% %UPSTREAM_SERVICE_TIME% "%X_FORWARDED_FOR%" "%USER_AGENT%" "%X_REQUEST_ID%" "%AUTHORITY%"
//	"%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS%
//	%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%
//
// on one line, durations in milliseconds.
func (e *logEntry) appendText(b []byte, status int, flags, details string, now time.Time) []byte {
	b = append(b, '[')
	b = e.began.UTC().AppendFormat(b, startTime)
	b = append(b, `] "`...)
	b = append(appendOr(b, e.method), ' ')
	b = append(appendOr(b, e.path), ' ')
	b = append(appendOr(b, e.protocol), `" `...)
	b = append(strconv.AppendInt(b, int64(status), 10), ' ')
	b = append(appendOr(b, flags), ' ')
	b = append(appendOr(b, details), ` - "-" `...)
	b = append(strconv.AppendUint(b, e.received, 10), ' ')
	b = append(strconv.AppendUint(b, e.sent, 10), ' ')
	b = append(strconv.AppendInt(b, now.Sub(e.began).Milliseconds(), 10), ' ')
	if e.firstByte.IsZero() {
		b = append(b, '-')
	} else {
		b = strconv.AppendInt(b, e.firstByte.Sub(e.began).Milliseconds(), 10)
	}
	for _, s := range [...]string{e.forwardedFor, e.userAgent, e.requestID, e.authority, e.upstream} {
		b = append(b, ` "`...)
		b = append(appendOr(b, s), '"')
	}
	b = append(b, " inbound "...)
	b = append(appendOr(b, e.upstreamLocal), ' ')
	b = append(appendOr(b, e.downstreamLocal), ' ')
	b = append(appendOr(b, e.downstream), ' ')
	serverName := ""
	if e.hello != nil {
		serverName = e.hello.serverName
	}
	return append(appendOr(b, serverName), " default\n"...)
}

// startTime is how Envoy writes a time.
const startTime = "2006-01-02T15:04:05.000Z"

func appendOr(b []byte, s string) []byte {
	if s == "" {
		return append(b, '-')
	}
	return appendSafe(b, s)
}

// appendSafe keeps what a client sent from forging lines or fields of the log.
func appendSafe(b []byte, s string) []byte {
	for i := range len(s) {
		switch ch := s[i]; {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch < ' ' || ch == 0x7f:
			b = append(b, `\x`...)
			b = append(b, hexDigits[ch>>4], hexDigits[ch&15])
		default:
			b = append(b, ch)
		}
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendJSON writes the same under Istio's names, in the order of the alphabet as
// Envoy does. What is not there is null. Of a connection with TLS there are members
// more, named as Envoy's operators are.
func (e *logEntry) appendJSON(b []byte, status int, flags, details string, now time.Time) []byte {
	text := func(name, s string) {
		b = append(b, '"')
		b = append(append(b, name...), `":`...)
		if s == "" {
			b = append(b, "null,"...)
			return
		}
		b = append(appendJSONString(b, s), ',')
	}
	number := func(name string, n int64) {
		b = append(b, '"')
		b = append(append(b, name...), `":`...)
		b = append(strconv.AppendInt(b, n, 10), ',')
	}
	hello := e.hello
	if hello == nil {
		hello = &noHandshake
	}
	b = append(b, '{')
	text("authority", e.authority)
	number("bytes_received", int64(e.received))
	number("bytes_sent", int64(e.sent))
	text("connection_termination_details", "")
	if e.hello != nil {
		text("downstream_alpn", hello.alpn)
	}
	text("downstream_local_address", e.downstreamLocal)
	if e.hello != nil {
		text("downstream_peer_subject", hello.peer)
	}
	text("downstream_remote_address", e.downstream)
	if e.hello != nil {
		text("downstream_tls_version", hello.version)
	}
	number("duration", now.Sub(e.began).Milliseconds())
	text("method", e.method)
	text("path", e.path)
	text("protocol", e.protocol)
	text("request_id", e.requestID)
	text("requested_server_name", hello.serverName)
	number("response_code", int64(status))
	text("response_code_details", details)
	if flags == "" {
		flags = "-" // as Envoy writes it
	}
	text("response_flags", flags)
	text("route_name", "default")
	b = append(b, `"start_time":"`...)
	b = append(e.began.UTC().AppendFormat(b, startTime), `",`...)
	text("upstream_cluster", "inbound")
	text("upstream_host", e.upstream)
	text("upstream_local_address", e.upstreamLocal)
	if e.firstByte.IsZero() {
		text("upstream_service_time", "")
	} else {
		text("upstream_service_time", strconv.FormatInt(e.firstByte.Sub(e.began).Milliseconds(), 10))
	}
	text("upstream_transport_failure_reason", "")
	text("user_agent", e.userAgent)
	text("x_forwarded_for", e.forwardedFor)
	b[len(b)-1] = '}'
	return append(b, '\n')
}

var noHandshake handshakeInfo

// appendJSONString writes a string of JSON (RFC 8259, 7). What is no UTF-8, which a
// client may send, becomes U+FFFD.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		ch := s[i]
		if ch >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		switch {
		case ch == '"' || ch == '\\':
			b = append(b, '\\', ch)
		case ch < ' ' || ch == 0x7f:
			b = append(b, `\u00`...)
			b = append(b, hexDigits[ch>>4], hexDigits[ch&15])
		default:
			b = append(b, ch)
		}
		i++
	}
	return append(b, '"')
}

// LogLost is how many lines of the access log were lost; false without one.
func (p *Pipe) LogLost() (uint64, bool) {
	if p.cfg.AccessLog == nil {
		return 0, false
	}
	return p.cfg.AccessLog.Lost(), true
}
