package observe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// What the kernel's counters show of a protocol. On the left what the client sends, on the right the app:
//
//	HTTP/1.1          request 25+ → ← response, one at a time
//	TLS               ClientHello 220+ → ← ServerHello … Finished 500+; then HTTP/1.1 or HTTP/2, and tickets
//	                  that look like responses; at the end close_notify 24 →, after which nothing follows
//	HTTP/2            SETTINGS, HEADERS 15+ → ← SETTINGS, responses, WINDOW_UPDATE 13 →: the last shows nothing
//	streamed response request → ← part ← part ← part: the last one looks like the others
const (
	leastRequest   = 25 // of HTTP/1.1, bytes: "GET / HTTP/1.1", an empty Host and the line ends (RFC 9112, 3.2)
	leastHello     = 220
	leastHandshake = 500 // from the server, with a certificate
	leastUpgrade   = 140 // a request for a WebSocket, and the response with the required fields alone (RFC 6455, 4.2.2)
	upgraded       = 129

	learned    = 3                      // connections that show a port to be TLS, while none shows the opposite
	leastPause = 50 * time.Millisecond  // between the first and the last part of a streamed response
	exitSpread = 100 * time.Millisecond // between the ends of an app's sockets
	maxStreams = 100                    // of an HTTP/2 connection (RFC 9113, 6.5.2: at least)

	burst = 250 * time.Millisecond // a streamed response continues within twice its longest pause and this
)

// isCloseNotify reports whether the last bytes of a client, perhaps with its FIN, may be TLS's close_notify: a record
// of 24 bytes in TLS 1.3 (RFC 8446, 5.2), of 31 with AES-GCM and 23 with ChaCha20 in TLS 1.2.
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

// isOpaque reports whether a client's connection is or may be of another protocol than HTTP/1.1. c is its last
// sighting, or nil.
func (g *ledger) isOpaque(s sockdiag.Socket, c *connection) bool {
	known, e := g.options.Protocols[s.Local.Port()], g.evidence[s.Local.Port()]
	return known >= Opaque || known == Unspecified && e.tls >= learned && e.plain == 0 ||
		c != nil && c.isOpaque || isUpgraded(s) ||
		s.SegmentsReceived >= 3 && isShort(s.DataReceived(), s.SegmentsReceived)
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
	isOpaque := g.isOpaque(s, c)
	switch f {
	case noRequest:
		return f
	case reset, unanswered, unclearCrossed:
		if isCloseNotify(lastBytes(s, c)) {
			f = unclearCrossed
		}
	case leftByClient:
		switch isSeen := c != nil && c.State == sockdiag.CloseWait; { // that the client closed first
		case !g.endedWithListener(s) && !finAckedByFin(s) && (!isOpaque || !g.endedBehindListener(s)):
			return f
		case !isSeen: // the app's close, whose small socket a late segment has ended, or the client's close
			f = unclearCrossed
		}
	case answered, unclearOrder:
		if !isOpaque && !isStream(s, c) || !closedByApp(s, c, appFirst) && !g.endedWithListener(s) {
			return f
		}
		f = unclearStream
	}
	if isOpaque {
		return unclearProtocol
	}
	return f
}

// endedWithListener reports whether a connection ended when its listener did: by the exit of the app.
func (g *ledger) endedWithListener(s sockdiag.Socket) bool {
	return g.endedBehindListener(s) && s.Ended.Before(g.exited[s.Local.Port()].Add(exitSpread))
}

// endedBehindListener reports whether a connection ended when its listener did, or later.
func (g *ledger) endedBehindListener(s sockdiag.Socket) bool {
	at := g.exited[s.Local.Port()]
	return !at.IsZero() && s.Ended.After(at.Add(-exitSpread))
}

// finAckedByFin reports whether the client's FIN acknowledged the app's: behind its request, it has sent nothing else.
func finAckedByFin(s sockdiag.Socket) bool { return s.Sent == 0 && s.Acked > 0 && s.EmptyReceived == 3 }

// requests is how many requests of a connection whose protocol is opaque may have been in flight, because each of the
// client's segments may have been one.
func (c *connection) requests() int {
	return int(min(max(c.SegmentsReceived-min(c.SegmentsReceived, c.segments), 1), maxStreams))
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

// noteAnswer notes what a look has shown up to the app's last byte.
func (c *connection) noteAnswer() {
	if c.turn == app {
		c.answered, c.answeredSent = c.DataReceived(), c.Sent
	}
}

// grow notes what has been sent since the last look.
func (c *connection) grow(s sockdiag.Socket, at time.Time) {
	if c.came(s) {
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
