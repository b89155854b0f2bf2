package pipe

import (
	"context"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/spread"
	"github.com/lastcall-dev/lastcall/internal/wire/earlyend"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// LastCall ends every connection: the busy ones one after another over a part of window, the oldest first, then the
// idle ones. Those that have to reach a boundary first have the rest of window for it.
func (p *Pipe) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	began := time.Now()
	p.closing.begin()
	p.stopTimers()
	stopped := p.StopAccepting(ctx) // even after an error, the listeners are closed
	var out []drain.Conversation
	var words []*lastWord
	awaited := make(map[*lastWord]bool)
	end := func(c *conn) {
		was, word := c.endAtLastCall()
		if out = append(out, was...); word != nil && !awaited[word] {
			awaited[word] = true
			words = append(words, word)
		}
	}
	busy := p.busiest()
	over := p.cfg.spread(len(busy), window)
	p.retries.Store(int64(spread.Retries(len(busy), over)))
	spread.Each(ctx, began, over, busy, end)
	for _, c := range p.all() {
		end(c)
	}
	return append(out, awaitLastWords(ctx, words, began.Add(window))...), stopped
}

// endAtLastCall ends the connection, with as little loss to its client as is still possible. It returns what it was,
// for the report; nothing if nothing was left to end; or the last word, if the conversation has to reach a boundary
// first.
func (c *conn) endAtLastCall() ([]drain.Conversation, *lastWord) {
	if w := c.requestLastWord(false); w != nil {
		return nil, w
	}
	c.mu.Lock()
	if c.mode == modeH2 {
		c.mu.Unlock()
		return c.h2.endFor(cause{on: onLastCall}, http2.NoError)
	}
	was := c.describeLocked()
	one := c.claimLocked(cause{on: onLastCall})
	c.mu.Unlock()
	if one == nil {
		return nil, nil
	}
	if len(was) > 0 {
		was[0].Ending = one.report
	}
	c.carryOut(one, stuckTime)
	return was, nil
}

// awaitLastWords returns the conversations that we have ended. Those not at a boundary by then end where they are.
func awaitLastWords(ctx context.Context, all []*lastWord, until time.Time) (out []drain.Conversation) {
	late := func(until time.Time) (left []*lastWord) {
		inTime, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		for _, one := range all {
			select {
			case <-one.done:
				continue
			default:
			}
			select {
			case <-one.done:
			case <-inTime.Done():
				left = append(left, one)
			}
		}
		return left
	}
	if left := late(until); len(left) > 0 {
		for _, one := range left {
			one.c.hurryLastWord()
		}
		for _, one := range late(time.Now().Add(stuckTime)) {
			one.c.giveUpLastWord()
		}
	}
	for _, one := range all {
		one.c.mu.Lock()
		if one.ending != "" {
			for i := range one.was {
				if one.was[i].Ending == "" { // streams have one each
					one.was[i].Ending = one.ending
				}
			}
			out = append(out, one.was...)
		}
		one.c.mu.Unlock()
	}
	return out
}

// lastWord is the end of a conversation that has to reach a boundary of its protocol first: a WebSocket the end of a
// message, an event stream the end of an event, gRPC over HTTP/2 the end of a message.
type lastWord struct {
	c       *conn
	was     []drain.Conversation // when it was requested; for the report
	ending  string               // how we have ended it; "" if the client has lost nothing
	early   bool                 // requested before the last call
	done    chan struct{}        // closed when the conversation has ended
	hasDone bool                 // guarded by the connection's mu
}

// endsAtBoundaryLocked reports whether the conversation consists of parts between which it can end.
func (c *conn) endsAtBoundaryLocked() bool {
	return !c.end.done() && (c.mode == modeWS || c.db.isBusyLocked() ||
		c.response.begun && c.response.content != earlyend.Unknown)
}

// endsEarlyLocked reports whether the conversation ends when the drain closes idle connections, as configured.
func (c *conn) endsEarlyLocked() bool {
	switch {
	case !c.p.closing.holds() || c.end.done():
		return false
	case c.mode == modeWS:
		return c.p.cfg.WebSockets == CloseEarly
	case c.mode == modeH2:
		return c.p.cfg.EventStreams == CloseEarly && slices.ContainsFunc(c.h2.streams, (*stream).isSubscription)
	}
	return c.p.cfg.EventStreams == CloseEarly &&
		(c.endsAtBoundaryLocked() && c.response.reconnects || c.pollLocked() != nil)
}

// requestLastWord ends the conversation at its next boundary, or now if it is at one. If early is true, it ends only
// conversations whose client loses nothing. It returns nil if there is nothing to wait for.
func (c *conn) requestLastWord(early bool) *lastWord {
	if early && c.endPoll() {
		return nil
	}
	c.mu.Lock()
	isH2 := c.mode == modeH2
	if !c.endsAtBoundaryLocked() {
		c.mu.Unlock()
		if isH2 && early {
			c.lastWordRequested.Store(true)
			c.h2.finishIfDrained(false)
		}
		return nil
	}
	if c.end.word == nil {
		c.end.word = &lastWord{c: c, done: make(chan struct{})}
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
	isWS, isDatabase := c.ws != nil, c.db != nil
	c.mu.Unlock()
	switch {
	case isWS:
		c.ws.sendClose(force)
		return
	case isDatabase:
		c.db.endBusy()
		return
	}
	if !c.streaming {
		return
	}
	c.down.body.SpreadRetries(time.Duration(c.p.retries.Load()))
	end, ok := c.down.body.End()
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
	c.endLocked(onLastCall)
	resets := c.response.untilClose && !end.Proper
	c.end.resets = resets
	if c.end.word != nil {
		c.end.word.ending = end.Name
	}
	c.mu.Unlock()
	if len(end.Last) > 0 {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.client.Send(end.Last, !resets) // bytes that are held back go with a FIN, not with a reset
	}
	c.carryOut(&claim{ending: endings[onLastCall][within]}, 0)
}

// settleLocked notifies the goroutine that waits for the last word.
func (c *conn) settleLocked() {
	if c.h2 != nil && c.end.done() {
		c.h2.forgetLocked()
	}
	w := c.end.word
	if w == nil || w.hasDone {
		return
	}
	// The app, which gets its client's close frame, may end the WebSocket before we do.
	if w.ending == "" && c.ws != nil && c.ws.closeSent.Load() {
		w.ending = c.ws.endingName()
	}
	if w.ending == "" && c.db.isBusyLocked() {
		w.ending = drain.EndingFIN
	}
	w.hasDone = true
	close(w.done)
}

// hurryLastWord ends the waits for either side.
func (c *conn) hurryLastWord() {
	soon := time.Now().Add(stuckTime / 2)
	_ = c.client.SetWriteDeadline(soon)
	if c.h2 != nil {
		c.h2.hurryLastMessages()
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

func (c *conn) giveUpLastWord() {
	c.mu.Lock()
	one := c.claimLocked(cause{on: onLastCall})
	if one != nil {
		if c.end.word.ending = drain.EndingTruncated; c.ws != nil {
			c.end.word.ending = c.ws.endingName()
		}
	}
	c.mu.Unlock()
	c.carryOut(one, 0)
}
