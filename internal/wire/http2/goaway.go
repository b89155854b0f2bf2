package http2

import (
	"bytes"
	"time"
)

// Shutdown is how far the graceful shutdown of a connection has come (RFC 9113, 6.8).
type Shutdown uint8

// States of a shutdown.
const (
	NotBegun  Shutdown = iota
	Pending            // GOAWAY is due at the next frame boundary
	Announced          // GOAWAY with MaxStreamID has been sent: new requests should go elsewhere, but are still served
	Final              // GOAWAY with the last stream has been sent
)

// AnnounceTime is the shortest time between the two GOAWAY frames, as in net/http: requests that the client sends
// before it has read the first one are served. RFC 9113, 6.8 requires at least a round trip.
const AnnounceTime = time.Second

// LastStream returns the last stream of the final GOAWAY. forwarded is the highest stream that the app has received,
// appLast the last stream of the app's own GOAWAY or MaxStreamID. A stream above it has not been processed.
func LastStream(forwarded, appLast uint32) uint32 { return min(forwarded, appLast) }

// AppendAnnouncement appends the GOAWAY that refuses nothing yet.
func AppendAnnouncement(dst []byte) []byte { return AppendGoAway(dst, MaxStreamID, NoError, "") }

const (
	// abruptPatience is for how long the GOAWAY to an Abrupt client is delayed after idle connections are closed. A
	// client that always has a request open must not delay the pod's end until the last call.
	abruptPatience = 10 * time.Second

	// longRest is for how long an Abrupt client must be idle before its GOAWAY: it may still be reading the last
	// response. The time is halved for every halfRest of the drain.
	longRest = 50 * time.Millisecond
	halfRest = 4 * time.Second
)

// Client is what a client does with its open requests when a GOAWAY comes. The zero value is unknown. A connection of
// several clients belongs to a proxy, which is Orderly: the highest value counts.
type Client uint8

// Kinds of clients.
const (
	Abrupt  Client = iota + 1 // it fails them
	Orderly                   // it lets them finish
)

// abruptAgents are prefixes of User-Agents that fail every open request on GOAWAY, even one with MaxStreamID.
var abruptAgents = [][]byte{
	[]byte("Java-http-client/"), // java.net.http of Java 17; later versions lose nothing by the delay
	[]byte("python-httpx/"),     // its h2 reads nothing after a GOAWAY
	[]byte("undici"),            // with allowH2; as Node's fetch it sends "node"
	[]byte("node"),
}

// ClientOf returns the kind of a client by its User-Agent. A client without one is Abrupt, since undici sends none.
func ClientOf(userAgent []byte) Client {
	if len(userAgent) == 0 {
		return Abrupt
	}
	for _, prefix := range abruptAgents {
		if bytes.HasPrefix(userAgent, prefix) {
			return Abrupt
		}
	}
	return Orderly
}

// Moment is the state of a connection that is to be shut down. A duration is 0 if what it measures has not begun.
type Moment struct {
	Open     int           // streams
	Idle     time.Duration // since the last stream ended
	Draining time.Duration // since the drain began
	Closing  time.Duration // since idle connections are closed
}

// Due reports whether the first GOAWAY is due for a client that has sent a request. If only idle time is missing, it
// returns when to ask again.
func (c Client) Due(m Moment) (due bool, again time.Duration) {
	switch {
	case c == Orderly:
		return true, 0
	case m.Open > 0:
		return m.Closing > abruptPatience, 0
	}
	if left := longRest>>(m.Draining/halfRest) - m.Idle; left > 0 {
		return false, left
	}
	return true, 0
}
