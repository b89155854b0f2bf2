package pipe

import (
	"bytes"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// goodbye is how far the goodbye has come.
type goodbye uint8

const (
	notSaid  goodbye = iota
	toBeSaid         // at the next boundary
	said             // GOAWAY with 2^31-1: no new connection's worth, but what comes is served
	final            // GOAWAY with the real last stream
)

// goodbyeTime is how long after the first goodbye the last one comes at the
// earliest. What the client asks before it has read the first is served; the last
// one refuses it. RFC 9113, 6.8, wants a round trip at least; net/http's server
// waits as long.
const goodbyeTime = time.Second

// abruptPatience is how long, from when idle connections are closed, the goodbye of
// an abrupt client is put off. It is then said all the same: who always has a
// request open must not hold the pod until its last call.
const abruptPatience = 10 * time.Second

// longRest is for how long an abrupt client has no request open before it is told
// goodbye: what it still reads of the last answer may fail with the goodbye, too.
// For those who never rest that long it becomes half of it every halfRest of the
// drain.
const (
	longRest = 50 * time.Millisecond
	halfRest = 4 * time.Second
)

// manners are what a client makes of a GOAWAY while requests of its are open.
type manners uint8

const (
	mannersUnknown manners = iota
	mannersAbrupt          // it fails them
	mannersOrderly         // it lets them end
)

// abruptAgents are the User-Agents of libraries that fail every open request when a
// GOAWAY comes, also the one that names 2^31-1.
var abruptAgents = [][]byte{
	[]byte("Java-http-client/"), // java.net.http of Java 17; to wait costs later ones nothing
	[]byte("python-httpx/"),     // its h2 reads nothing more after a GOAWAY
	[]byte("undici"),            // with allowH2; as Node's fetch it says node
	[]byte("node"),
}

// mannersOf judges by the User-Agent of a request; who does not say one is taken for
// abrupt, as undici is.
func mannersOf(agent []byte) manners {
	if len(agent) == 0 {
		return mannersAbrupt
	}
	for _, prefix := range abruptAgents {
		if bytes.HasPrefix(agent, prefix) {
			return mannersAbrupt
		}
	}
	return mannersOrderly
}

// meet adds what a request tells of its client. A connection of several clients is
// a proxy's, and orderly; so are gRPC's.
func (h *h2) meet(s *stream, of manners) {
	if s.grpc {
		of = mannersOrderly
	}
	h.manners = max(h.manners, of)
}

// isDue says whether the goodbye can be said. Whoever has not asked anything yet is
// told with the first request, as with HTTP/1.1: a client that reads a goodbye
// before it has written its request refuses it by itself (those of nghttp2 do), and
// whom the balancer still sends here would never be served. mu is held.
func (c *conn) isDue() bool {
	h := c.h2
	switch {
	case c.over || c.last || h.finishing || h.last == 0:
		return false // or the last call has come
	case h.manners == mannersOrderly:
		return true
	case len(h.streams) > 0:
		return c.p.closing.lasted() > abruptPatience
	}
	rest := longRest >> (c.p.draining.lasted() / halfRest)
	if left := rest - time.Since(c.idleSince); left > 0 {
		c.lookAgain(left)
		return false
	}
	return c.client.Unread() == 0 // else it has asked
}

// lookAgain goes on with the goodbye after a while. mu is held.
func (c *conn) lookAgain(after time.Duration) {
	if c.h2.looksAgain {
		return
	}
	c.h2.looksAgain = true
	time.AfterFunc(after, func() {
		c.mu.Lock()
		c.h2.looksAgain = false
		c.mu.Unlock()
		c.finishIfDrained()
	})
}

// sayGoAway says goodbye if it is due: from now on new requests should go elsewhere,
// but what comes is served (RFC 9113, 6.8). It is said at the next boundary between
// the app's frames, and after its SETTINGS, which must be the first.
func (c *conn) sayGoAway() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.h2.goodbye == notSaid {
		c.mu.Lock()
		due := c.isDue()
		c.mu.Unlock()
		if due {
			c.h2.goodbye = toBeSaid
		}
	}
	c.sayGoAwayLocked()
}

func (c *conn) sayGoAwayLocked() {
	if c.h2.goodbye == toBeSaid && c.h2.down.Spoke && c.h2.canSay() {
		c.h2.goodbye, c.h2.saidAt = said, time.Now()
		if c.h2.appLast == http2.MaxStreamID { // else the app has said goodbye with a real last stream already
			c.in.stats.h2.goAways.Add(1)
			_ = c.client.Send(http2.AppendGoAway(nil, http2.MaxStreamID, http2.NoError, ""), false)
		}
	}
}

// finishIfDrained goes on with the goodbye: says it when it is due, and ends the
// connection when the client has had the time to read it and the last stream has
// ended. It returns whether the connection is over.
func (c *conn) finishIfDrained() bool {
	if !c.saysGoodbye() && !c.p.closing.holds() {
		return false
	}
	c.sayGoAway()
	c.wmu.Lock()
	c.mu.Lock()
	done := !c.over && len(c.h2.streams) == 0 && c.h2.goodbye == said && c.h2.canSay()
	if done {
		if left := time.Until(c.h2.saidAt.Add(goodbyeTime)); left > 0 {
			done = false
			c.lookAgain(left)
		}
	}
	var goodbye []byte
	if done {
		c.over = true
		c.h2.goodbye = final
		goodbye = c.lastGoAway(http2.NoError)
	}
	over := c.over
	c.mu.Unlock()
	if done {
		_ = c.client.Send(goodbye, true)
	}
	c.wmu.Unlock()
	if done {
		c.end()
		c.mu.Lock()
		c.recount()
		c.mu.Unlock()
	}
	return over
}

// endIdleH2 says the last goodbye on an idle connection; end follows.
func (c *conn) endIdleH2() {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.h2.down.Spoke && c.h2.canSay() {
		c.h2.goodbye = final
		c.mu.Lock()
		goodbye := c.lastGoAway(http2.NoError)
		c.mu.Unlock()
		_ = c.client.Send(goodbye, true)
	}
}

// lastGoAway is the goodbye with the real last stream, which is never higher than
// what the app has said (RFC 9113, 6.8). mu is held.
func (c *conn) lastGoAway(code http2.ErrCode) []byte {
	c.in.stats.h2.goAways.Add(1)
	return http2.AppendGoAway(nil, min(c.h2.last, c.h2.appLast), code, "")
}

// canSay says whether a frame of ours can go to the client. wmu is held.
func (h *h2) canSay() bool { return h.down.AtBoundary() && !h.torn && h.goodbye != final }
