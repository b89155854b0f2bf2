package pipe

import (
	"io"
	"strconv"
	"sync"
	"time"
)

// AccessLog writes one line per request, in the default format of Istio's
// Envoys. Lines are gathered while a write is under way and written together;
// Close returns when the last one is out.
type AccessLog struct {
	w    io.Writer
	mu   sync.Mutex
	cond sync.Cond
	buf  []byte
	done bool
	gone chan struct{}
}

// NewAccessLog starts an access log on w. Close ends it.
func NewAccessLog(w io.Writer) *AccessLog {
	l := &AccessLog{w: w, gone: make(chan struct{})}
	l.cond.L = &l.mu
	go l.run()
	return l
}

func (l *AccessLog) run() {
	defer close(l.gone)
	var spare []byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.buf) == 0 {
			if l.done {
				return
			}
			l.cond.Wait()
		}
		out := l.buf
		l.buf = spare[:0]
		l.mu.Unlock()
		_, _ = l.w.Write(out) // a full disk must not stop the traffic
		spare = out
		l.mu.Lock()
	}
}

// Close writes what is left and returns.
func (l *AccessLog) Close() {
	l.mu.Lock()
	l.done = true
	l.cond.Signal()
	l.mu.Unlock()
	<-l.gone
}

func (l *AccessLog) add(e *logEntry, status int, flags, details string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buf) > 4<<20 { // the writer hangs: lose lines rather than memory
		return
	}
	l.buf = e.append(l.buf, status, flags, details, time.Now())
	l.cond.Signal()
}

// logEntry is what the access log has to know of a request. It is made only
// when there is a log.
type logEntry struct {
	began                                                time.Time
	method, path, protocol                               string
	forwardedFor, userAgent, requestID, authority        string
	upstream, upstreamLocal, downstream, downstreamLocal string
	received, sent                                       uint64
	status                                               int
	firstByte                                            time.Time
}

func (p *Pipe) newEntry(c *conn, h *head, raw []byte) *logEntry {
	if p.cfg.AccessLog == nil {
		return nil
	}
	e := &logEntry{
		began: time.Now(), method: "-", path: "-", protocol: "HTTP/1.1",
		downstream: c.client.RemoteAddr().String(), downstreamLocal: c.client.LocalAddr().String(),
		upstream: c.appName(),
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

// finishEntry writes the line of a request that has ended. e may be nil.
func (p *Pipe) finishEntry(e *logEntry, status int, flags, details string) {
	if e != nil {
		p.cfg.AccessLog.add(e, status, flags, details)
	}
}

// append writes
//
//	[%START_TIME%] "%METHOD% %PATH% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS%
//	%CONNECTION_TERMINATION_DETAILS% "%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT%
//	%DURATION% %UPSTREAM_SERVICE_TIME% "%X_FORWARDED_FOR%" "%USER_AGENT%" "%X_REQUEST_ID%" "%AUTHORITY%"
//	"%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS%
//	%DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%
//
// on one line, durations in milliseconds.
func (e *logEntry) append(b []byte, status int, flags, details string, now time.Time) []byte {
	b = append(b, '[')
	b = e.began.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(b, `] "`...)
	b = append(appendSafe(b, e.method), ' ')
	b = append(appendSafe(b, e.path), ' ')
	b = append(append(b, e.protocol...), `" `...)
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
	b = append(appendOr(b, e.downstream), " - default\n"...)
	return b
}

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
			b = append(b, "0123456789abcdef"[ch>>4], "0123456789abcdef"[ch&15])
		default:
			b = append(b, ch)
		}
	}
	return b
}
