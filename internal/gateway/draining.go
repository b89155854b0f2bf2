package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lastcall-dev/lastcall/internal/drain"
)

// Drain says goodbye: HTTP/2 by a GOAWAY now, HTTP/1.1 with each response from now on.
// New connections are still accepted, and told the same.
func (p *Plane) Drain(context.Context) error {
	p.draining.Store(true)
	p.mu.Lock()
	told, in := p.h2, p.second
	p.former = append(p.former, told)
	p.h2, p.second = p.newServer(true)
	p.mu.Unlock()
	// Shutdown says GOAWAY first, then waits; it ends with p.ctx at the latest. It does not close
	// connections that speak HTTP/2, which net/http never takes for idle.
	p.owned.Go(func() { _ = told.Shutdown(p.ctx) })
	<-in.done
	p.changed()
	return nil
}

// Resume is for hooks, which a gateway has none of.
func (p *Plane) Resume(context.Context) error { return errResume }

// Activity counts what is open. Health checks never count.
func (p *Plane) Activity(context.Context) (drain.Activity, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := drain.Activity{Known: true, Connections: len(p.clients), Arrivals: p.arrivals.Load()}
	for c := range p.clients {
		if c.busy() {
			a.Busy++
		}
	}
	return a, nil
}

// Changes tells of each change.
func (p *Plane) Changes() <-chan struct{} { return p.changes }

// CloseIdle closes connections that have been idle for idleFor, and from now on each that
// becomes so.
func (p *Plane) CloseIdle(_ context.Context, idleFor time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeIdle, p.idleFor = true, idleFor
	for c := range p.clients {
		p.mayClose(c)
	}
	return nil
}

// mayClose closes c, or sees to it that it is closed in time, if it is idle. It is called
// with mu held.
func (p *Plane) mayClose(c *client) {
	if !p.closeIdle || c.busy() {
		return
	}
	c.clock.Stop()
	c.clock = time.AfterFunc(max(0, p.idleFor-time.Since(c.idleSince), c.unflushed()), func() {
		p.mu.Lock()
		idle := !c.busy() && time.Since(c.idleSince) >= p.idleFor && !p.killed
		if idle && c.unflushed() > 0 {
			p.mayClose(c)
			idle = false
		}
		p.mu.Unlock()
		if idle {
			_ = c.outer.Close()
		}
	})
}

// StopAccepting closes the listeners, after whoever has connected already has been taken
// in.
func (p *Plane) StopAccepting(context.Context) error {
	p.refusing.Store(true)
	p.mu.Lock()
	listeners := p.listeners
	p.listeners = nil
	p.mu.Unlock()
	for _, l := range listeners {
		l.close(true)
	}
	return nil
}

// busiest lists the conversations, the oldest first.
func (p *Plane) busiest() []*conversation {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*conversation, 0, len(p.open))
	for c := range p.open {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *conversation) int {
		return cmp.Or(a.began.Compare(b.began), cmp.Compare(a.request.RemoteAddr, b.request.RemoteAddr))
	})
	return out
}

// Open lists requests in flight and upgraded connections.
func (p *Plane) Open(_ context.Context, most int) ([]drain.Conversation, error) {
	var out []drain.Conversation
	now := time.Now()
	for _, c := range p.busiest() {
		if len(out) == most {
			break
		}
		out = append(out, c.tell(now))
	}
	return out, nil
}

// LastCall ends what is in flight: a request without an answer gets a 503 (gRPC:
// UNAVAILABLE), an answer that has begun is broken off, a WebSocket gets a close frame
// 1001 on both sides.
func (p *Plane) LastCall(ctx context.Context, window time.Duration) ([]drain.Conversation, error) {
	_ = p.StopAccepting(ctx)
	all := p.busiest()
	var out []drain.Conversation
	for i, c := range all {
		if i > 0 {
			select {
			case <-time.After(window / time.Duration(len(all))):
			case <-ctx.Done():
			}
		}
		if !p.isOpen(c) {
			continue
		}
		said := c.tell(time.Now())
		said.Ending = c.end()
		out = append(out, said)
	}
	_ = p.CloseIdle(ctx, 0)
	// A WebSocket whose other side does not answer is not waited for any longer.
	bound, cancel := context.WithTimeout(ctx, min(window, lingerTime))
	defer cancel()
	_ = p.await(bound, func() bool { return len(p.open) == 0 })
	for _, c := range p.busiest() {
		c.cancel(errLastCall)
	}
	return out, nil
}

func (p *Plane) isOpen(c *conversation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, open := p.open[c]
	return open
}

// await waits for f, which is asked with mu held.
func (p *Plane) await(ctx context.Context, f func() bool) error {
	for {
		p.mu.Lock()
		met, bell := f(), p.bell
		p.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-bell:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close returns when the clients have all that was written for them, or do not want it.
func (p *Plane) Close(ctx context.Context) error {
	_ = p.StopAccepting(ctx)
	_ = p.CloseIdle(ctx, 0)
	err := p.await(ctx, func() bool { return len(p.clients) == 0 && len(p.open) == 0 && p.lingering == 0 })
	if err != nil {
		p.mu.Lock()
		left := len(p.clients)
		p.mu.Unlock()
		return fmt.Errorf("%d connections are still open: %w", left, err)
	}
	p.Kill()
	return nil
}

// Kill ends everything at once, and waits until it has ended.
func (p *Plane) Kill() {
	p.refusing.Store(true)
	p.draining.Store(true) // await is told
	p.mu.Lock()
	p.killed = true
	listeners, servers := p.listeners, append(slices.Clone(p.former), p.h1, p.h2)
	p.listeners = nil
	var clients []*client
	for c := range p.clients {
		clients = append(clients, c)
	}
	for c := range p.open {
		c.cancel(errKilled)
	}
	p.mu.Unlock()
	for _, l := range listeners {
		l.close(false)
	}
	p.cancel()
	for _, s := range servers {
		_ = s.Close()
	}
	for _, c := range clients {
		_ = c.Close()
	}
	p.owned.Wait()
	_ = p.await(context.Background(), func() bool { return len(p.open) == 0 && p.lingering == 0 })
	p.exit()
}

// errKilled is the end of requests when everything is broken off.
var errKilled = errors.New("the gateway has been killed")
