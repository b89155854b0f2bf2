package pipe

import (
	"net/http"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
)

type admission uint8

const (
	forwarded admission = iota
	discarded           // the connection is being ended
	delayed             // until there is room in the queue
	misses              // the app has ended its connection: up connects to it again first
)

// admit puts a request into the queue before it is forwarded.
func (u *up) admit(h *http1.Head, raw []byte) admission {
	c := u.c
	u.clearDeadline()
	line := raw[:min(len(h.Method)+1+len(h.Target), maxLine)]
	kept, holds := line, len(line)
	if c.p.cfg.AccessLog != nil {
		holds += len(raw)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end.last() {
		c.arriving = false
		c.recountLocked()
		return discarded
	}
	if c.rejoins {
		return misses
	}
	repeatable := c.isRepeatableLocked(h, raw)
	if repeatable {
		kept, holds = raw, holds+len(raw)-len(line)
	}
	queued := c.queue.len()
	if queued >= maxQueued || queued > 0 && (c.queue.held+holds > maxQueuedBytes || c.p.budget.IsFull()) {
		u.headBegan = time.Time{} // the client is not to blame for the delay
		c.paused, c.arriving = true, false
		return delayed
	}
	isQuiet := http1.IsProbe(h.UserAgent)
	u.body = h.Body
	u.waits = h.Tunnel() != 0
	c.mode, c.awaitsFirst = modeHTTP1, false
	c.growsLocked()
	q := c.queue.push()
	q.began = time.Now()
	q.isHead, q.tunnel, q.close, q.quiet = h.IsHead, h.Tunnel(), h.Close, isQuiet
	q.wantsWS = h.WebSocket
	if c.p.cfg.EventStreams == CloseEarly {
		if end := h.LongPollEnd(); end != "" {
			q.poll = &accesslog.Reply{Status: http.StatusOK, Body: end}
			if c.p.closing.holds() {
				c.p.after(pollTime, func() { c.requestLastWord(true) })
			}
		}
	}
	q.line = append(q.line, kept...)
	if repeatable {
		q.head = q.line
		q.line = q.line[:len(line)]
	}
	q.held = len(kept)
	if q.entry = c.p.newEntry(c, h, raw); q.entry != nil {
		q.held += entryMemory + q.entry.Held()
	}
	c.queue.held += q.held
	// A client that announces the close sends no other request (RFC 9112, 9.6).
	if h.Close && !u.waits {
		c.end.advance(lastMessage)
	}
	if u.waits {
		c.decided = false
		u.upgraded = append(u.upgraded[:0], q.line...)
	}
	if !isQuiet && !c.isIgnored() {
		c.p.arrivals.Add(1)
	}
	c.in.stats.Requests.Add(1)
	c.arriving = h.Body.Kind != http1.NoBody
	c.uploads, c.awaits100 = c.arriving, c.arriving && h.Expects
	u.expects = c.awaits100
	began := u.headBegan
	u.headBegan = time.Time{}
	if !c.arriving {
		u.setAfterRequest()
	} else if u.within = true; c.p.cfg.RequestTimeout > 0 {
		if began.IsZero() {
			began = q.began
		}
		u.timed = true
		_ = c.client.SetReadDeadline(began.Add(c.p.cfg.RequestTimeout))
	}
	if c.busy {
		c.p.changed() // an arrival; the counts are the same
	}
	c.recountLocked()
	return forwarded
}

// requestEnds is called when all of a request has been forwarded. Its response may have been complete before.
func (u *up) requestEnds() {
	c := u.c
	u.ends = false
	u.clearDeadline()
	c.mu.Lock()
	c.arriving, c.uploads = false, false
	u.setAfterRequest()
	hasEnded, answered := c.end.done(), c.queue.len() == 0 && c.end.refusal == nil
	leave := answered && (c.end.last() || c.restart.leaves.Load() || c.p.closing.holds())
	c.recountLocked()
	c.mu.Unlock()
	switch {
	case hasEnded:
		c.linger()
	case leave:
		c.endBy(onAnswered)
	}
}

// bodyBegins is called with the first bytes after a head that waits for 100 (Continue). If the client has its final
// response, it may have sent another request in place of the body (RFC 9110, 10.1.1): they are not forwarded, and the
// response has announced the close. It returns false then.
func (u *up) bodyBegins() bool {
	c := u.c
	u.expects = false
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaits100 = false
	if !c.end.done() {
		return true
	}
	u.discard()
	return false
}

func (u *up) setAfterRequest() {
	if u.within = false; u.waits {
		u.mode = modeUpgrade
	}
}
