package pipe

import (
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
)

// A long poll is repeated by its client by design, so EventStreams applies to it as to an event stream.

// pollTime is how long the app has for a poll that comes when polls are being ended: it may have packets to deliver.
const pollTime = 100 * time.Millisecond

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
