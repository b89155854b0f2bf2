package observe

import (
	"net/netip"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/istio"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// What the kernel's counters show of a protocol. On the left what the client sends, on the right the app:
//
//	HTTP/1.1          request 25+ → ← response, one at a time
//	TLS 1.3           ClientHello 220+ → ← ServerHello … Finished 500+, Finished, request → ← tickets, response
//	                  and at the end close_notify 24 →, after which nothing follows
//	HTTP/2            SETTINGS, HEADERS 15+ → ← SETTINGS, responses, WINDOW_UPDATE 13 →: which was last shows nothing
//	streamed response request → ← part ← part ← part: the last one looks like the others
const (
	leastRequest    = 25 // of HTTP/1.1, bytes: "GET / HTTP/1.1", an empty Host and the line ends (RFC 9112, 3.2)
	leastTLSRequest = 64 // a record with a request; HTTP/2's PING and WINDOW_UPDATE together are shorter
	leastHello      = 220
	leastHandshake  = 500 // from the server, with a certificate
	leastUpgrade    = 140 // a request for a WebSocket, and the response with the required fields alone (RFC 6455, 4.2.2)
	upgraded        = 129

	learned    = 3                      // connections that show a port to be TLS, while none shows the opposite
	inUse      = time.Minute            // after its last byte, TLS is idle: HTTP/2 may owe a slow answer behind a fast
	leastPause = 50 * time.Millisecond  // between the first and the last part of a streamed response
	exitSpread = 100 * time.Millisecond // between the ends of an app's sockets
	maxStreams = 100                    // of an HTTP/2 connection (RFC 9113, 6.5.2: at least)

	firstTLS = 3 // the client's segments until its first request: the tickets of TLS 1.3 behind it look like a response

	burst = 250 * time.Millisecond // a streamed response continues within twice its longest pause and this
)

// isCloseNotify reports whether the last bytes of a client, perhaps with its FIN, are TLS's close_notify: a record of
// 24 bytes in TLS 1.3 (RFC 8446, 5.2), of 31 with AES-GCM and 23 with ChaCha20 in TLS 1.2.
func isCloseNotify(bytes uint64) bool {
	return bytes >= 23 && bytes <= 25 || bytes == 31 || bytes == 32
}

// evidence counts a port's connections by the protocol that their sizes allow.
type evidence struct{ tls, plain int }

// learn notes the sizes of a connection that has ended.
func (g *ledger) learn(s sockdiag.Socket) {
	port := s.Local.Port()
	if !g.ports[port] || s.Received <= 1 || s.Sent == 0 || g.options.Protocols[port] != Unspecified {
		return
	}
	e := g.evidence[port]
	if s.SegmentsReceived >= 2 && s.Received >= leastHello && s.Sent >= leastHandshake {
		e.tls++
	} else {
		e.plain++
	}
	g.evidence[port] = e
}

// protocolOf returns the protocol of a client's connection. c is its last sighting, or nil.
func (g *ledger) protocolOf(s sockdiag.Socket, c *connection) Protocol {
	known := g.options.Protocols[s.Local.Port()]
	e := g.evidence[s.Local.Port()]
	switch {
	case known == Opaque, known != TLS && (c != nil && c.isOpaque || isUpgraded(s) ||
		s.SegmentsReceived >= 3 && isShort(received(s), s.SegmentsReceived)):
		return Opaque
	case known == Unspecified && e.tls >= learned && e.plain == 0:
		return TLS
	}
	return known
}

// isShort reports whether the client's bytes in so many segments are too few for a request in each.
func isShort(bytes uint64, segments uint32) bool { return bytes < leastRequest*uint64(segments) }

// isUpgraded reports whether the app has sent the shortest response for a WebSocket, and perhaps a few short messages.
func isUpgraded(s sockdiag.Socket) bool {
	return s.Received >= leastUpgrade && s.Sent >= upgraded && s.Sent-upgraded <= 8*uint64(max(s.SegmentsSent, 1)-1)
}

// lastBytes are those of the client behind the app's last byte, 0 if unknown.
func lastBytes(s sockdiag.Socket, c *connection) uint64 {
	switch {
	case s.ReadQueue > 1:
		return uint64(s.ReadQueue)
	case c != nil && c.answeredSent == s.Sent:
		return s.Received - min(s.Received, c.answered)
	case s.Sent == 0:
		return s.Received
	}
	return 0
}

// refine turns an outcome that is certain for HTTP/1.1 into what is known for the protocol of the connection.
func (g *ledger) refine(f outcome, s sockdiag.Socket, c *connection, appFirst func() bool) outcome {
	if s.Remote.Port() == 0 && c != nil {
		s = c.Socket
	}
	protocol := g.protocolOf(s, c)
	switch f {
	case reset, unanswered, unclearCrossed:
		switch last := lastBytes(s, c); { // 0 of TLS: unknown
		case isCloseNotify(last) && protocol == TLS:
			return leftByClient
		case isCloseNotify(last):
			return unclearCrossed
		case protocol == Opaque, protocol == TLS && last < leastTLSRequest && f != unclearCrossed:
			return unclearProtocol
		}
	case leftByClient:
		if protocol >= TLS && g.endedWithListener(s) { // the app's exit, and the client's message behind it
			return unclearProtocol
		}
	case answered, unclearOrder:
		if protocol == TLS && c != nil && isCloseNotify(s.Sent-c.Sent) && c.turn == app && s.Received-c.Received <= 1 {
			return answered // the app closed it between two requests
		}
		isInUse := protocol == Opaque ||
			protocol == TLS && (min(s.LastReceived, s.LastSent) < inUse || s.SegmentsReceived <= firstTLS)
		if isStream := isStream(s, c); (isInUse || isStream) && (closedByApp(s, c, appFirst) || g.endedWithListener(s)) {
			if isInUse {
				return unclearProtocol
			}
			return unclearStream
		}
	}
	return f
}

// closedByApp reports whether the app closed first.
func closedByApp(s sockdiag.Socket, c *connection, appFirst func() bool) bool {
	switch {
	case c == nil:
		return appFirst()
	case c.State == sockdiag.CloseWait:
		return false
	}
	return c.appFirst || c.State != sockdiag.Established || s.Received == c.Received || appFirst()
}

// endedWithListener reports whether a connection ended when its listener did: by the exit of the app.
func (g *ledger) endedWithListener(s sockdiag.Socket) bool {
	at := g.closed[s.Local.Port()]
	return !at.IsZero() && s.Ended.Sub(at).Abs() < exitSpread
}

// requestsMost is how many requests of a connection may have been in flight: one of HTTP/1.1, and otherwise each of the
// client's segments may have been one.
func (g *ledger) requestsMost(s sockdiag.Socket, c *connection) int {
	if g.protocolOf(s, c) < TLS {
		return 1
	}
	n := s.SegmentsReceived
	if c != nil {
		n -= min(n, c.segments)
		n++ // one was in flight at the first look
	}
	return int(min(max(n, 1), maxStreams))
}

// isStream reports whether the app was in the middle of a response in parts, or at its end. Without a look that has
// shown the parts, they are short segments, more than twice as many as the client's.
func isStream(s sockdiag.Socket, c *connection) bool {
	if c != nil && c.parts > 1 { // looks have shown it
		return c.partLast.Sub(c.partFirst) >= leastPause && s.LastSent <= 2*c.pause+burst
	}
	return s.LastReceived-s.LastSent >= burst && s.SegmentsSent >= 2*s.SegmentsReceived+2 &&
		2*s.Sent < uint64(s.SegmentsSent)*uint64(s.MSS)
}

// grow notes what has been sent since the last look.
func (c *connection) grow(s sockdiag.Socket, at time.Time) {
	if received(s) > received(c.Socket)+fin(s) {
		c.parts = 0
	}
	if s.Sent > c.Sent {
		c.part(at)
	}
}

// part notes that the app has sent more behind the client's last byte.
func (c *connection) part(now time.Time) {
	if c.parts++; c.parts == 1 {
		c.partFirst, c.pause = now, 0
	} else {
		c.pause = max(c.pause, now.Sub(c.partLast))
	}
	c.partLast = now
}

// A pod with a sidecar has two connections for a request: the client's to the sidecar, and the sidecar's to the app,
// the inner one. Each shows what the other does not. If the app ends first, a sidecar that knows HTTP answers the
// client with an error, and only the inner one ends without an answer; if the sidecar ends first, only the client's
// does.

// isWithin reports whether a connection to an address of the namespace comes from the namespace itself.
func isWithin(to, from netip.Addr) bool {
	return to.IsLoopback() || from.IsLoopback() || to == from || from == istio.Source6 ||
		tcp.Sources4.Contains(from) || tcp.Sources6.Contains(from)
}

// isInner reports whether the sidecar connects to a port from an address: not from 127.0.0.1, from where another
// container of the pod asks, such as the app its cache.
func (g *ledger) isInner(from netip.Addr, port uint16) bool {
	return len(g.options.ProxyPorts) > 0 && g.ports[port] && !slices.Contains(g.options.ProxyPorts, port) &&
		(!from.IsLoopback() || from == istio.Source4)
}

// isAttempt reports whether a destroyed socket is an attempt of the sidecar to connect, which the app's port refused:
// its SYN was not acknowledged.
func (g *ledger) isAttempt(s sockdiag.Socket) bool {
	return isWithin(s.Remote.Addr(), s.Local.Addr()) && g.isInner(s.Local.Addr(), s.Remote.Port()) &&
		s.Acked == 0 && s.Received == 0
}

// lostRequest is one of a client's connection to the sidecar or of an inner one.
type lostRequest struct {
	isInner     bool
	requestedAt time.Time // when its last byte came
}

const (
	passTime    = 250 * time.Millisecond // a sidecar passes a request on within this, also on a busy machine
	maxUnpaired = 1 << 12                // lost requests whose other connection is looked for
)

// isCountedAtOther reports whether a lost request has been counted at its other connection: a sidecar that relays bytes
// relays the end, too, and a pod that is killed loses both.
func (g *ledger) isCountedAtOther(e ending) bool {
	if len(g.options.ProxyPorts) == 0 || !e.isInner && !slices.Contains(g.options.ProxyPorts, e.sample.Port) {
		return false
	}
	one := lostRequest{e.isInner, e.requestedAt}
	for i, other := range g.unpaired {
		if other.isInner != one.isInner && one.requestedAt.Sub(other.requestedAt).Abs() <= passTime {
			g.unpaired = slices.Delete(g.unpaired, i, i+1)
			return true
		}
	}
	if len(g.unpaired) < maxUnpaired {
		g.unpaired = append(g.unpaired, one)
	}
	return false
}
