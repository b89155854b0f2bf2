package observe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
)

// turn is the side that sent last.
type turn int

const (
	neither turn = iota
	client       // the app owes an answer
	app
	unclear // both in one tick of the kernel's clock
)

// connection is a client's connection as the last look saw it.
type connection struct {
	sockdiag.Socket
	turn     turn
	arrived  time.Time
	active   bool // with a request since Begin, or in flight then
	settled  bool // its turn has been resolved, since bytes moved
	appFirst bool // the table shows that the app closed first
	isInner  bool // the proxy's to the app
	missed   int  // looks in a row that did not show it, while the kernel has not reported its end
	isProbe  bool // taken for one

	answered     uint64 // Received at the last look at which the app had sent last,
	answeredSent uint64 // and Sent then
	segments     uint32 // SegmentsReceived before the first request that may be in flight
	isOpaque     bool   // the app sent first, or the client a message too short for HTTP/1.1
	// Looks that have shown more of the app's bytes behind the client's last one; see isStream.
	parts               int
	partFirst, partLast time.Time
	pause               time.Duration // the longest between two of them
}

// queued reports whether the app has not accepted the connection.
func (c *connection) queued() bool { return c.Inode == 0 && c.State == sockdiag.Established }

// busy reports whether a request is in flight, as far as visible.
func (c *connection) busy() bool { return c.Unread() > 0 || c.WriteQueue > 1 || c.turn == client }

// isInDoubt reports whether both sides sent last in one tick of the kernel's clock.
func (c *connection) isInDoubt() bool {
	return !c.settled && c.Sent > 0 && c.LastReceived == c.LastSent
}

// age adds a time in which no segment came or went.
func (c *connection) age(d time.Duration) {
	c.LastReceived += d
	c.LastSent += d
	c.LastAcked += d
}

// turnOf determines which side sent last on s; was is the last sighting of the connection, or nil.
func turnOf(s sockdiag.Socket, was *connection) turn {
	came := was == nil || was.came(s)
	went := was == nil || s.Sent != was.Sent
	switch {
	case s.SegmentsReceived == 0: // handshake, and perhaps a FIN
		return neither
	case !came && !went:
		return was.turn
	case s.Sent == 0 || !went:
		return client
	case !came:
		return app
	case s.LastReceived < s.LastSent:
		return client
	case s.LastReceived > s.LastSent:
		return app
	}
	// Both in one tick. An answer follows its request: behind one segment of the client the app was last.
	in := s.SegmentsReceived
	if was != nil && was.turn == app {
		in -= was.SegmentsReceived
	}
	switch {
	case s.Unread() > 0 && s.State != closed:
		return client
	case in == 1:
		return app
	}
	return unclear
}

// came reports whether the client has sent data since c was seen. One byte may be its FIN.
func (c *connection) came(s sockdiag.Socket) bool { return s.DataReceived() > c.DataReceived()+1 }

// closed is the state of a destroyed socket (TCP_CLOSE).
const closed = sockdiag.State(7)

// outcome is how a connection ended for its client.
type outcome int

const (
	noRequest       outcome = iota // there was no request
	answered                       // as far as visible
	unclearOrder                   // answered, or not: both sent last in one tick
	leftByClient                   // the client closed first
	reset                          // lost
	unanswered                     // lost
	unclearCrossed                 // the client sent after the app's close
	unclearProtocol                // in use, of a protocol that does not show its requests
	unclearStream                  // in the middle of a response in parts, or at its end
)

// judge determines the outcome of a destroyed socket. was is the last sighting, or nil. appFirst reports whether the
// app closed first and the client after it: the kernel then keeps a TIME_WAIT socket here.
func judge(s sockdiag.Socket, was *connection, appFirst func() bool) outcome {
	if s.Remote.Port() == 0 { // tcp_disconnect has cleared it: reset by the end of its listener, or by SO_LINGER 0
		if was == nil || was.queued() || was.busy() {
			return reset
		}
		return noRequest
	}
	var (
		next      = turnOf(s, was)
		finAcked  = s.Acked > s.Sent // the app closed, and the client knows
		unacked   = s.WriteQueue > 1 // the FIN counts as one
		unread    = s.ReadQueue > 1  // likewise
		pending   = unread || next == client
		wasClosed = was != nil && was.State == sockdiag.CloseWait
		noFIN     = was != nil && was.State == sockdiag.Established && was.Received == s.Received
	)
	switch {
	case s.SegmentsReceived == 0:
		return noRequest
	case wasClosed && (pending || unacked):
		return leftByClient
	case unread && !finAcked: // a close with unread bytes resets; those of an answered request do no harm
		if !unacked && next == app {
			return answered
		}
		if !unacked && next == unclear {
			return unclearOrder
		}
		if was != nil && was.missed >= maxMissed {
			return leftByClient // it was no longer in the table, but the app still had it: the client reset it
		}
		return reset
	case unacked: // the client's reset: the app's own close would have delivered everything first
		return leftByClient
	case pending && finAcked:
		if closedByApp(s, was, appFirst) {
			return unanswered
		}
		return leftByClient
	case pending && s.WriteQueue == 1: // the app closed, and the client sent more, or reset
		return reset
	case pending:
		return leftByClient
	case !finAcked && s.WriteQueue == 1, finAcked && noFIN && !appFirst():
		return unclearCrossed
	case next == unclear && !wasClosed:
		return unclearOrder
	}
	return answered
}

// closedByApp reports whether the app closed first. was is the last sighting, or nil; see judge for appFirst.
func closedByApp(s sockdiag.Socket, was *connection, appFirst func() bool) bool {
	switch {
	case was == nil:
	case was.State == sockdiag.CloseWait || was.State == sockdiag.LastAck:
		return false
	case was.appFirst || was.State != sockdiag.Established || s.Received == was.Received:
		return true
	case s.Acked > s.Sent && s.Received == was.Received+1 && s.EmptyReceived == was.EmptyReceived+1:
		return true // one segment was the client's FIN and acknowledged the app's
	}
	return appFirst()
}

// maxMissed is how many looks a report may be late: the kernel sends them in the background.
const maxMissed = 20
