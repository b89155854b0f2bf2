package pipe

import (
	"sync"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
	"github.com/lastcall-dev/lastcall/internal/wire/tlshello"
)

// sniff decides from a client's first bytes what it speaks. Bytes that look like an HTTP/1 request are treated as one
// even if they are malformed, and get a 400: passed through as bytes it would have no limits. Protocols in which the
// server speaks first are not seen here. TLS passes through as bytes; only the names in its ClientHello are read.
func (u *up) sniff(b []byte) mode {
	if http2.IsPreface(b) {
		if len(b) < len(http2.Preface) {
			return undecided
		}
		return modeH2
	}
	if b[0] == tlshello.RecordType { // which passes through
		hello, more := tlshello.Find(b)
		if more {
			return undecided
		}
		if hello != nil {
			names := tlshello.Parse(hello)
			u.c.hello.Store(&tcp.TLSInfo{ServerName: names.ServerName, ALPN: names.ALPN})
		}
		return opaque
	}
	if findDatabase(b) != nil {
		return modeDatabase
	}
	switch http1.Sniff(b) {
	case http1.Request:
		return modeHTTP1
	case http1.NotHTTP:
		return opaque
	}
	if len(b) > u.c.p.cfg.MaxHead {
		return modeHTTP1 // to be answered with 414
	}
	return undecided
}

// sniffTime is how long a client's first bytes may leave the protocol undecided: without a sidecar they would reach the
// app at once. A client that pauses longer within its first line speaks bytes, unless the app is known to speak HTTP:
// then it has the time of a head.
const sniffTime = time.Second

// ports are those of captured connections at which the app has answered HTTP, and 0 for other connections: each port
// may belong to another app.
type ports struct{ sync.Map }

func (p *ports) has(port uint16) bool {
	_, is := p.Load(port)
	return is
}

func (p *ports) add(port uint16) { p.LoadOrStore(port, nil) }

func (c *conn) noteHTTP() { c.in.http.add(c.origin.Port()) }

func (c *conn) speaksHTTP() bool { return c.in.http.has(c.origin.Port()) }

// sniffedEnough ends the wait for a first line, unless the app has shown since that it speaks HTTP. It reports whether
// it was one.
func (u *up) sniffedEnough() bool {
	if !u.timed || u.mode != undecided || u.buf == nil || u.endAwaitFirst() {
		return false
	}
	if !u.c.speaksHTTP() {
		u.passAsBytes()
		return true
	}
	left := time.Until(u.headBegan.Add(u.c.p.headTime()))
	_ = u.c.client.SetReadDeadline(time.Now().Add(left))
	return left > 0
}
