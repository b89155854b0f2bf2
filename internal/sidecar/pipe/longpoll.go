package pipe

import (
	"bytes"
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

// The packet in the framing of version 3 of the protocol, whose packets have their lengths before them, and of 4.
var (
	endPollV3 = accesslog.Reply{Status: 200, Body: "1:1"}
	endPollV4 = accesslog.Reply{Status: 200, Body: "1"}
)

// longPoll is the event that ends a request which is a long poll of a session; noEvent if it is none.
func longPoll(h *http1.Head) event {
	_, query, _ := bytes.Cut(h.Target, []byte("?"))
	if string(h.Method) != "GET" || len(query) == 0 {
		return noEvent
	}
	var by event
	var polls, hasSession bool
	for pair := range bytes.SplitSeq(query, []byte("&")) {
		name, value, _ := bytes.Cut(pair, []byte("="))
		switch string(name) {
		case "EIO":
			switch string(value) {
			case "3":
				by = onPollV3
			case "4":
				by = onPollV4
			}
		case "transport":
			polls = string(value) == "polling"
		case "sid":
			hasSession = len(value) > 0
		}
	}
	if !polls || !hasSession {
		return noEvent
	}
	return by
}

// pollLocked is the event that ends the long poll which the connection waits for; noEvent if it waits for none.
func (c *conn) pollLocked() event {
	if c.end.phase >= replying || c.mode != modeHTTP1 || c.queue.len() != 1 || c.response.begun {
		return noEvent
	}
	return c.queue.at(0).poll
}

// endPoll ends the long poll that the connection waits for, and reports whether there was one.
func (c *conn) endPoll() bool {
	c.mu.Lock()
	poll := c.pollLocked()
	var one *claim
	if poll != noEvent {
		one = c.claimLocked(cause{on: poll})
	}
	c.mu.Unlock()
	c.carryOut(one, stuckTime)
	return one != nil
}
