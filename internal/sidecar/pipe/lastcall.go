package pipe

import (
	"context"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/spread"
)

// LastCall ends every connection: the busy ones one after another over a part of window, the oldest first, then the
// idle ones. Those that have to reach a boundary first have the rest of window for it.
func (p *Pipe) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	began := time.Now()
	p.closing.begin()
	p.stopTimers()
	stopped := p.StopAccepting(ctx) // even after an error, the listeners are closed
	var out []drain.Conversation
	var words []waiting
	awaited := make(map[*lastWord]bool)
	end := func(c *conn) {
		was, word := c.endAtLastCall()
		out = append(out, was...)
		if word != nil && !awaited[word] {
			awaited[word] = true
			words = append(words, waiting{c, word})
		}
	}
	busy := p.busiest()
	over := p.cfg.spread(len(busy), window)
	p.spreadRetries(len(busy), over)
	spread.Each(ctx, began, over, busy, end)
	for _, c := range p.all() {
		end(c)
	}
	return append(out, p.awaitLastWords(ctx, words, began.Add(window))...), stopped
}

// spreadRetries asks clients that wait before they reconnect, those of event streams, to spread their return if the
// endings of n conversations, which are spread over a time, cannot.
func (p *Pipe) spreadRetries(n int, over time.Duration) {
	p.retries.Store(int64(spread.Retries(n, over)))
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
