package pipe

import (
	"bytes"
	"net/url"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

// A long poll is a GET to which the app responds once it has something to say. Its client repeats it by design, so
// EventStreams applies to it as to an event stream. The pipe knows those of Engine.IO, the transport of Socket.IO: its
// server ends a session by a packet of type close, after which the client connects again
// (https://socket.io/docs/v4/engine-io-protocol/).

// pollTime is how long the app has for a poll that comes when polls are being ended: it may have packets to deliver.
const pollTime = 100 * time.Millisecond

// endPolls are responses with that packet by the version of the protocol. Packets of 3 have their lengths before them.
var endPolls = map[string]*accesslog.Reply{"3": {Status: 200, Body: "1:1"}, "4": {Status: 200, Body: "1"}}

// longPoll is the reply that ends a request which is a long poll of a session; nil if it is none.
func longPoll(h *http1.Head) *accesslog.Reply {
	_, query, _ := bytes.Cut(h.Target, []byte("?"))
	if string(h.Method) != "GET" || !bytes.Contains(query, []byte("transport=polling")) {
		return nil
	}
	values, err := url.ParseQuery(string(query))
	if err != nil || values.Get("transport") != "polling" || values.Get("sid") == "" {
		return nil
	}
	return endPolls[values.Get("EIO")]
}

// pollLocked is the reply that ends the long poll which the connection waits for; nil if it waits for none.
func (c *conn) pollLocked() *accesslog.Reply {
	if c.end.phase >= replying || c.mode != modeHTTP1 || c.queue.len() != 1 || c.response.begun {
		return nil
	}
	return c.queue.at(0).poll
}

// endPoll ends the long poll that the connection waits for, and reports whether there was one.
func (c *conn) endPoll() bool {
	var one *claim
	c.mu.Lock()
	if poll := c.pollLocked(); poll != nil {
		one = c.claimLocked(cause{onPollEnds, poll, accesslog.ViaUpstream})
	}
	c.mu.Unlock()
	c.carryOut(one, stuckTime)
	return one != nil
}
