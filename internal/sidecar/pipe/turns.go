package pipe

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/counters"
)

// turns follows which side of an opaque connection sends. Its messages are not visible, so this is all that shows
// whether an answer is due.
//
// An HTTP/1.1 app ends a kept connection when it reads the end of its input between two requests. In a drain the pipe
// sends that end, a half-close, once the app was the last to send and neither side has sent for a while. With HTTP/2
// this would be wrong: a slow response may be due while a fast one was the last to be sent.
type turns struct {
	mu       sync.Mutex
	app      bool          // the app was the last to send
	at       time.Time     // when the last bytes came; zero before the first
	requests int           // how often the client has begun to send
	pause    time.Duration // within the present answer, the longest
	longest  time.Duration // within the answers that are known to be complete
	known    bool          // there was such an answer
	follows  bool          // a timer will look
	halved   bool          // we have sent the half-close
	alerted  bool          // the client's last bytes are no request, but an alert
	left     bool          // the client has ended its output
	over     bool          // the app has
	chosen   *string       // the protocol that the app has chosen by ALPN, "" for none; nil while it is not visible
}

const (
	// firstRequest is the turn of the client that certainly is a request. The first is its ClientHello. The second ends
	// the handshake and may contain the first request, but session tickets may follow it as well (RFC 8446, 4.6.1).
	firstRequest = 3

	// requestRecord is the size of the smallest record of TLS with a request: a header of 5 bytes, an authentication tag
	// of 16, and "GET / HTTP/1.0" with its empty line. An alert has 19 to 31 bytes (RFC 8446, 5.2 and 6).
	requestRecord = 5 + 16 + 18

	// silenceMin is the shortest silence. Packets of one answer, and a client that sends its next request at once, are
	// closer together.
	silenceMin = 50 * time.Millisecond

	// silenceFactor is how much longer than the longest pause within an answer the silence must last.
	silenceFactor = 4

	// lastWordTime is how long before the end of its connection an app sends the last bytes of its answer, a GOAWAY or
	// close_notify.
	lastWordTime = 100 * time.Millisecond

	// streamWordTime is the same for one that sends at intervals: an end may follow any of its messages by chance.
	streamWordTime = 10 * time.Millisecond
)

// came records bytes of one side. It reports whether a silence of the app begins that no timer follows.
func (t *turns) came(fromApp bool) (begins bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	switch {
	case fromApp && t.app:
		t.pause = max(t.pause, now.Sub(t.at))
	case !fromApp && (t.app || t.at.IsZero()):
		if t.requests >= firstRequest { // the answer to this turn was complete
			t.longest, t.known = max(t.longest, t.pause), true
		}
		t.requests++
		t.pause = 0
	}
	t.app, t.at = fromApp, now
	return fromApp && !t.follows
}

// quiet is the time since the app's last bytes, if the client has sent none since; 0 if a request may be in flight.
func (c *conn) quiet() time.Duration {
	t := &c.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.app || c.passesTLS() && (t.requests < firstRequest || c.mayBeHTTP2Locked()) {
		return 0
	}
	return time.Since(t.at)
}

// cameFromClient and cameFromApp are called before the bytes are forwarded, with their number. A client of TLS that
// closes its connection sends a close_notify, which is no request.
func (c *conn) cameFromClient(n int64) {
	isAlert := n < requestRecord && c.passesTLS() && c.turns.is(&c.turns.app)
	c.turns.set(&c.turns.alerted, isAlert)
	if !isAlert {
		c.turns.came(false)
	}
}

func (c *conn) cameFromApp(int64) {
	if c.turns.came(true) && c.p.closing.holds() {
		c.followSilence()
	}
}

// passesTLS reports whether the connection is TLS that the app terminates.
func (c *conn) passesTLS() bool { return c.in.tls == nil && c.hello.Load() != nil }

// mayBeHTTP2Locked reports whether the TLS connection may carry HTTP/2.
func (c *conn) mayBeHTTP2Locked() bool {
	if chosen := c.turns.chosen; chosen != nil {
		return *chosen == "h2"
	}
	return slices.Contains(strings.Split(c.hello.Load().ALPN, "+"), "h2")
}

// followSilence sends the app a half-close once the connection is silent between two requests.
func (c *conn) followSilence() {
	if c.p.cfg.AppFinishes || !c.passesTLS() || c.hasEnded() || !c.p.closing.holds() {
		return
	}
	unread := c.client.Unread() > 0 // a request, which is served
	t := &c.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	silence := time.Duration(c.p.idleGrace.Load())
	if t.known {
		silence = min(max(silenceFactor*t.longest, silenceMin), max(silence, silenceMin))
	}
	left := time.Until(t.at.Add(silence))
	switch t.follows = false; {
	case !t.app || t.requests < firstRequest || t.halved || t.left || c.mayBeHTTP2Locked(): // an answer may be due
	case left > 0 || unread:
		t.follows = true
		c.p.after(max(left, unreadTime), c.followSilence)
	default:
		t.halved = true
		_ = c.app.CloseWrite()
	}
}

// set changes one of its fields: left when the client has ended its output, follows when a timer was stopped.
func (t *turns) set(field *bool, value bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*field = value
}

func (t *turns) is(field *bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *field
}

// noteAppEnd records the end of the app's output, and counts it if the app has ended the connection by itself. err is
// nil for an orderly end.
func (c *conn) noteAppEnd(err error) {
	hasEnded := c.hasEnded()
	t := &c.turns
	t.mu.Lock()
	t.over = true
	// The app streams if it sent several times in a row, with pauses that a last word has not, and the silence is no
	// longer than they make likely. Such a stream ends with a last word, or in its middle. TLS shows an orderly close.
	silence := time.Since(t.at)
	inUse := t.app && t.pause > lastWordTime && silence > streamWordTime && silence <= silenceFactor*t.pause &&
		!c.passesTLS()
	isOwn := (!t.left || inUse) && !t.halved && !hasEnded && (err == nil || errors.Is(err, syscall.ECONNRESET))
	answered := !inUse && t.app && silence <= lastWordTime
	dropped := err != nil || inUse || !t.app && !t.at.IsZero()
	if c.passesTLS() && c.mayBeHTTP2Locked() { // its client may send last without a request, its app before the answer
		dropped = !answered
	}
	t.mu.Unlock()
	if !isOwn {
		return
	}
	ends := &c.p.opaqueEnds
	if answered && err == nil {
		ends.answered.Add(1)
	}
	if dropped {
		ends.dropped.Add(1)
	}
	ends.ended.Add(1)
}

// opaqueInterval is the shortest interval between two log lines about a kind of opaque connection.
const opaqueInterval = 10 * time.Minute

// noteOpaque counts a connection that is passed through as bytes, and logs it if the configuration does not require it.
func (c *conn) noteOpaque(kind counters.Opaque) {
	c.in.stats.Opaque[kind].Add(1)
	if kind == counters.OpaqueTCP || kind == counters.OpaqueTLS {
		return
	}
	msg := "opaque connection (" + kind.String() + "): busy while open, HTTP limits do not apply"
	c.p.throttle.Log(c.p.cfg.Log, slog.LevelInfo, opaqueInterval, msg, "listener", c.in.Listen,
		"from", c.client.RemoteAddr().String())
}
