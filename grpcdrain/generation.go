package grpcdrain

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/lastcall-dev/lastcall/internal/listen"
)

// generationTime is how long a server takes new connections during a drain before it is retired, and
// they get their GOAWAY.
const generationTime = time.Second

// generation is one grpc.Server and the connections that it serves. Its server accepts from it.
type generation struct {
	*listen.Feed
	server   *grpc.Server
	starting sync.WaitGroup // connections that grpc.Server has not begun with: it would close them in GracefulStop
	retiring *time.Timer    // set by the first connection during a drain
}

func (p *Plane) newGeneration() *generation {
	return &generation{
		Feed:   listen.NewFeed(),
		server: p.newServer(grpc.ChainUnaryInterceptor(p.unary), grpc.ChainStreamInterceptor(p.stream)),
	}
}

// begin makes g the server of new connections. p.mu is held, or p is not shared yet.
func (p *Plane) begin(g *generation) {
	p.current = g
	p.generations[g] = struct{}{}
	go func() { _ = g.server.Serve(g) }() // ends with GracefulStop or Stop
}

// serve hands a connection to the current server.
func (p *Plane) serve(c *conn) {
	var made *generation
	for {
		p.mu.Lock()
		if p.current != nil || p.spare != nil || made != nil || p.listeners.HasEnded() {
			break
		}
		p.mu.Unlock()
		made = p.newGeneration() // without the lock: the function is the user's
	}
	if p.listeners.HasEnded() {
		p.mu.Unlock()
		_ = c.Close()
		return
	}
	switch {
	case p.current != nil:
	case p.spare != nil:
		p.begin(p.spare)
		p.spare = nil
	default:
		p.begin(made)
		made = nil
	}
	if made != nil { // Serve of another listener was faster
		p.spare = made
	}
	g := p.current
	c.mu.Lock()
	isOpen := c.state != closed
	if isOpen {
		c.server = g
		g.starting.Add(1)
		p.waiting--
	}
	c.mu.Unlock()
	if p.draining && g.retiring == nil {
		g.retiring = time.AfterFunc(generationTime, func() { p.retireLate(g) })
	}
	p.mu.Unlock()
	if !isOpen {
		return
	}
	if !g.Give(c) { // killed
		_ = c.Close()
	}
}

// retireLate retires a server that has accepted connections during a drain.
func (p *Plane) retireLate(g *generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == g && p.draining {
		p.retireCurrent()
	}
	g.retiring = nil
}

// retireCurrent sends every connection of the current server a GOAWAY. Connections that are accepted later are
// another server's. p.mu is held.
func (p *Plane) retireCurrent() {
	g := p.current
	if g == nil {
		return
	}
	p.current = nil
	if g.retiring != nil {
		g.retiring.Stop()
	}
	var conns []*conn
	for c := range p.conns {
		if c.server == g {
			conns = append(conns, c)
		}
	}
	go func() {
		g.starting.Wait()
		for _, c := range conns {
			c.limitHandshake(c.began.Add(handshakeTime))
		}
		g.server.GracefulStop()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.generations, g)
		p.mu.Changed()
	}()
}
