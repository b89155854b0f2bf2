package pipe

import (
	"context"
	"strconv"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/accesslog"
)

// lastWord is an ending for which a conversation has to come to a boundary of its
// protocol: a WebSocket to the end of a message, an event stream to the end of an
// event.
type lastWord struct {
	was    []drain.Conversation // what it was when it was asked for; for the report
	ending string               // how we ended it; "" when the client has lost nothing
	early  bool                 // asked for before the last call
	done   chan struct{}        // closed when the conversation has ended
	isDone bool                 // guarded by the connection's mu
}

// hasLastWord says whether the conversation is one that ends at a boundary. mu is
// held.
func (c *conn) hasLastWord() bool {
	return !c.over && (c.mode == modeWS || c.responding && c.content != finite)
}

// endsEarly says whether the conversation is one whose last word does not wait for
// the last call. mu is held.
func (c *conn) endsEarly() bool {
	return c.p.closing.holds() && c.hasLastWord() && c.mayEndEarly()
}

// mayEndEarly says what the configuration says of it. mu is held.
func (c *conn) mayEndEarly() bool {
	if c.mode == modeWS {
		return c.p.cfg.WebSockets == CloseEarly
	}
	return c.reconnects && c.p.cfg.EventStreams == CloseEarly
}

// askLastWord ends the conversation at its next boundary, or now. Early, it ends
// only what its client loses nothing by. It returns nil when there is nothing to
// wait for.
func (c *conn) askLastWord(early bool) *lastWord {
	c.mu.Lock()
	if !c.hasLastWord() {
		c.mu.Unlock()
		return nil
	}
	if c.word == nil {
		c.word = &lastWord{done: make(chan struct{})}
	}
	w := c.word
	w.was, w.early = c.describe(), early
	c.mu.Unlock()
	c.asked.Store(true)
	c.heedLastWord()
	return w
}

// heedLastWord says the last word, if it has been asked for and this is a
// boundary. Whoever has held wmu to pass something on calls it when he has let go:
// who asked meanwhile could not.
func (c *conn) heedLastWord() {
	if c.asked.Load() && c.wmu.TryLock() {
		c.sayLastWord(false)
		c.wmu.Unlock()
	}
}

// sayLastWord says it, if this is a boundary. With force the frames of a
// fragmented message are boundaries too. wmu is held.
func (c *conn) sayLastWord(force bool) {
	c.mu.Lock()
	isWS := c.ws != nil
	c.mu.Unlock()
	if isWS {
		c.sayWebSocketClose(force)
		return
	}
	if !c.streaming {
		return
	}
	f, ok := c.down.body.farewell()
	if !ok {
		return
	}
	c.mu.Lock()
	switch early := c.word == nil || c.word.early; {
	case c.over:
		c.mu.Unlock()
		return
	case early && f.ending != "": // it has turned out to have an end of its own
		c.asked.Store(false)
		c.mu.Unlock()
		return
	}
	c.over = true
	resets := c.endsWithConn && !f.proper
	c.resets = resets
	if c.word != nil {
		c.word.ending = f.ending
	}
	c.mu.Unlock()
	if len(f.bytes) > 0 {
		_ = c.client.SetWriteDeadline(time.Now().Add(stuckTime))
		_ = c.client.Send(f.bytes, !resets) // a FIN takes with it what is held back, a reset does not
	}
	c.letGo()
}

// letGo ends a conversation that has had its last word.
func (c *conn) letGo() {
	c.end()
	c.noteLastWord()
}

// noteLastWord counts the conversation as gone, now that its last word is on its
// way, and writes it down.
func (c *conn) noteLastWord() {
	c.mu.Lock()
	unanswered := c.queue.take()
	c.recount()
	c.mu.Unlock()
	for i := range unanswered {
		c.finish(&unanswered[i], unanswered[i].status, accesslog.LastCall)
	}
}

// settle tells who waits for the last word that the conversation has ended. mu is
// held.
func (c *conn) settle() {
	w := c.word
	if w == nil || w.isDone {
		return
	}
	// Told by its client's answer, the app may end it before we do.
	if w.ending == "" && c.ws != nil && c.ws.said.Load() {
		w.ending = c.closeName()
	}
	w.isDone = true
	close(w.done)
}

// waiting is a conversation whose last word has been asked for.
type waiting struct {
	c *conn
	w *lastWord
}

// awaitLastWords returns which of the conversations were ended by us, and how. Who
// has not come to a boundary until then is ended where he stands.
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

// hurryLastWord wakes whoever waits for a peer of the conversation.
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
		c.sayLastWord(true)
		c.wmu.Unlock()
	}
	_ = c.app.SetWriteDeadline(soon)
	_ = c.client.SetReadDeadline(time.Now()) // up ends it
}

// giveUpLastWord ends the conversation where it stands.
func (c *conn) giveUpLastWord() {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.over = true
	c.resets = c.endsWithConn
	c.word.ending = "truncated"
	if c.ws != nil && c.ws.said.Load() {
		c.word.ending = c.closeName()
	}
	c.mu.Unlock()
	c.letGo()
}

func (c *conn) closeName() string { return "close " + strconv.Itoa(c.p.cfg.WebSocketCode) }
