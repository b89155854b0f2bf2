package grpcdrain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/drain"
	"github.com/lastcall-dev/lastcall/internal/spread"
)

// handlersTime is how long handlers may run after the last call has ended their contexts.
const handlersTime = 500 * time.Millisecond

// goAwayTime is how long Close leaves an idle connection to its client after the GOAWAY.
const goAwayTime = time.Second

// CloseIdle implements drain.DataPlane. Connections that have been sent a GOAWAY close by themselves when they
// are idle; those of the last second are sent theirs with an idleFor of 0.
func (p *Plane) CloseIdle(_ context.Context, idleFor time.Duration) error {
	p.mu.Lock()
	p.closing = true
	if idleFor == 0 {
		p.retireCurrent()
	}
	var uncounted []*call
	for c := range p.calls {
		if c.streams && !c.counts {
			uncounted = append(uncounted, c)
		}
	}
	p.mu.Unlock()
	for _, c := range uncounted {
		p.end(c)
	}
	return nil
}

// StopAccepting implements drain.DataPlane.
func (p *Plane) StopAccepting(ctx context.Context) error {
	p.setHealth(false)
	return p.listeners.Stop(ctx)
}

// LastCall implements drain.DataPlane.
func (p *Plane) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	stopErr := p.StopAccepting(ctx)
	began := time.Now()
	p.mu.Lock()
	p.called = true
	p.retireCurrent()
	var open []*call
	for c := range p.calls {
		open = append(open, c)
	}
	p.mu.Unlock()
	slices.SortFunc(open, func(a, b *call) int { return a.began.Compare(b.began) })
	var ended []drain.Conversation
	spread.Each(ctx, began, spread.Over(len(open), window/2, window), open, func(c *call) {
		was := c.conversation()
		if p.end(c) && c.counts {
			was.Ending = drain.EndingGRPC
			ended = append(ended, was)
		}
	})
	return ended, stopErr
}

// Close implements drain.DataPlane. After a last call, it abandons handlers that ignore their contexts.
func (p *Plane) Close(ctx context.Context) error {
	err := errors.Join(p.StopAccepting(ctx), p.CloseIdle(ctx, 0))
	p.mu.Lock()
	called := p.called
	p.mu.Unlock()
	if called {
		ending, cancel := context.WithTimeout(ctx, handlersTime)
		_ = p.wait(ending)
		cancel()
	} else {
		overdue := time.AfterFunc(goAwayTime, p.closeWithoutCalls)
		err = errors.Join(err, p.wait(ctx))
		overdue.Stop()
	}
	if err != nil {
		return err
	}
	p.finish()
	return nil
}

// closeWithoutCalls closes the connections without a call whose clients have acknowledged no GOAWAY. grpc.Server
// waits for them for 5 s.
func (p *Plane) closeWithoutCalls() {
	p.mu.Lock()
	idle := maps.Clone(p.conns)
	for c := range p.calls {
		delete(idle, c.conn)
	}
	p.mu.Unlock()
	for c := range idle {
		_ = c.Close()
	}
}

// wait returns when no connection and no handler is left.
func (p *Plane) wait(ctx context.Context) error {
	return p.mu.Await(ctx, func() bool { return len(p.generations) == 0 && p.waiting == 0 && p.working == 0 })
}

// finish closes the remaining connections and the listeners, so that Serve returns.
func (p *Plane) finish() {
	p.mu.Lock()
	p.listeners.End()
	p.called = true
	all := p.generations
	if p.spare != nil {
		go p.spare.server.Stop()
		p.spare = nil
	}
	p.current = nil
	var conns []*conn
	for c := range p.conns {
		conns = append(conns, c)
	}
	for g := range all {
		_ = g.Close()
		go g.server.Stop() // with grpc.WaitForHandlers it waits for them
	}
	p.mu.Unlock()
	p.listeners.Close()
	for _, c := range conns {
		_ = c.Close()
	}
}

// Kill implements drain.DataPlane.
func (p *Plane) Kill() {
	p.mu.Lock()
	for c := range p.calls {
		c.cancel(ErrLastCall)
	}
	p.mu.Unlock()
	p.finish()
}
