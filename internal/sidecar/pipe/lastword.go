package pipe

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
)

// lastWord is the end of a conversation that has to reach a boundary of its protocol first: a WebSocket the end of a
// message, an event stream the end of an event, gRPC over HTTP/2 the end of a message.
type lastWord struct {
	was     []drain.Conversation // when it was requested; for the report
	ending  string               // how we have ended it; "" if the client has lost nothing
	early   bool                 // requested before the last call
	done    chan struct{}        // closed when the conversation has ended
	hasDone bool                 // guarded by the connection's mu
}

// endsAtBoundaryLocked reports whether the conversation consists of parts between which it can end.
func (c *conn) endsAtBoundaryLocked() bool {
	return !c.end.done() && (c.mode == modeWS || c.response.begun && c.response.content != earlyend.Unknown)
}

// endsEarlyLocked reports whether the conversation ends when the drain closes idle connections, as configured.
func (c *conn) endsEarlyLocked() bool {
	if !c.p.closing.holds() || !c.endsAtBoundaryLocked() {
		return false
	}
	if c.mode == modeWS {
		return c.p.cfg.WebSockets == CloseEarly
	}
	return c.response.reconnects && c.p.cfg.EventStreams == CloseEarly
}

// requestLastWord ends the conversation at its next boundary, or now if it is at one. If early is true, it ends only
// conversations whose client loses nothing. It returns nil if there is nothing to wait for.
func (c *conn) requestLastWord(early bool) *lastWord {
	c.mu.Lock()
	if !c.endsAtBoundaryLocked() {
		c.mu.Unlock()
		return nil
	}
	if c.end.word == nil {
		c.end.word = &lastWord{done: make(chan struct{})}
	}
	w := c.end.word
	w.was, w.early = c.describeLocked(), early
	c.mu.Unlock()
	c.lastWordRequested.Store(true)
	c.tryLastWord()
	return w
}

// tryLastWord sends the last word if it has been requested and this is a boundary. It is called after each release of
// wmu: a request made meanwhile could not take it.
func (c *conn) tryLastWord() {
	if c.lastWordRequested.Load() && c.wmu.TryLock() {
		c.sendLastWord(false)
		c.wmu.Unlock()
	}
}

// sendLastWord sends it at a boundary; with force, also between frames of a fragmented message. wmu is held.
func (c *conn) sendLastWord(force bool) {
	c.mu.Lock()
	isWS := c.ws != nil
	c.mu.Unlock()
	if isWS {
		c.sendWebSocketClose(force)
		return
	}
	if !c.streaming {
		return
	}
	end, ok := c.down.body.End(accesslog.MessageLastCall)
	if !ok {
		return
	}
	c.mu.Lock()
	switch early := c.end.word == nil || c.end.word.early; {
	case c.end.done():
		c.mu.Unlock()
		return
	case early && end.Name != "": // its client would lose something
		c.lastWordRequested.Store(false)
		c.mu.Unlock()
		return
	}
	c.end.phase, c.end.by = ended, &endLastCall
	resets := c.response.untilClose && !end.Proper
	c.end.resets = resets
	if c.end.word != nil {
		c.end.word.ending = end.Name
	}
	c.mu.Unlock()
	if len(end.Last) > 0 {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.client.Send(end.Last, !resets) // a FIN takes with it what is held back, a reset does not
	}
	c.carryOut(&claim{ending: &endLastCall}, 0)
}

// logLastWord logs the requests of a conversation that has had its last word, and counts it as gone.
func (c *conn) logLastWord() {
	c.mu.Lock()
	unanswered := c.queue.take()
	c.recountLocked()
	c.mu.Unlock()
	for i := range unanswered {
		c.finish(&unanswered[i], unanswered[i].status, endLastCall.within)
	}
}

// settleLocked notifies the goroutine that waits for the last word.
func (c *conn) settleLocked() {
	w := c.end.word
	if w == nil || w.hasDone {
		return
	}
	// The app, which gets its client's close frame, may end the WebSocket before we do.
	if w.ending == "" && c.ws != nil && c.ws.closeSent.Load() {
		w.ending = c.webSocketEnding()
	}
	w.hasDone = true
	close(w.done)
}

// waiting is a conversation whose last word has been requested.
type waiting struct {
	c *conn
	w *lastWord
}

// awaitLastWords returns the conversations that we have ended. Those not at a boundary by then end where they are.
func (p *Pipe) awaitLastWords(ctx context.Context, all []waiting, until time.Time) []drain.Conversation {
	inTime, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	late := func(ctx context.Context) (left []waiting) {
		for _, one := range all {
			select {
			case <-one.w.done:
			case <-ctx.Done():
				select {
				case <-one.w.done:
				default:
					left = append(left, one)
				}
			}
		}
		return left
	}
	if left := late(inTime); len(left) > 0 {
		for _, one := range left {
			one.c.hurryLastWord()
		}
		moment, cancel := context.WithTimeout(ctx, stuckTime)
		left = late(moment)
		cancel()
		for _, one := range left {
			one.c.giveUpLastWord()
		}
	}
	var out []drain.Conversation
	for _, one := range all {
		one.c.mu.Lock()
		if one.w.ending != "" {
			for i := range one.w.was {
				if one.w.was[i].Ending == "" { // streams have one each
					one.w.was[i].Ending = one.w.ending
				}
			}
			out = append(out, one.w.was...)
		}
		one.c.mu.Unlock()
	}
	return out
}

// hurryLastWord ends the waits for either side.
func (c *conn) hurryLastWord() {
	soon := time.Now().Add(stuckTime / 2)
	_ = c.client.SetWriteDeadline(soon)
	if c.h2 != nil {
		c.hurryLastMessages()
		return
	}
	if c.ws == nil {
		return
	}
	if c.wmu.TryLock() {
		c.sendLastWord(true)
		c.wmu.Unlock()
	}
	_ = c.app.SetWriteDeadline(soon)
	_ = c.client.SetReadDeadline(time.Now()) // up ends it
}

// giveUpLastWord ends the conversation where it is.
func (c *conn) giveUpLastWord() {
	c.mu.Lock()
	one := c.claimLocked(&endLastCallSilent)
	if one != nil {
		if c.end.word.ending = "truncated"; c.ws != nil {
			c.end.word.ending = c.webSocketEnding()
		}
	}
	c.mu.Unlock()
	c.carryOut(one, 0)
}
