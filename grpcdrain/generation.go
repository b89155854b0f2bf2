package grpcdrain

import (
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// generationTime is how long a server takes new connections during a drain before it is retired, and
// they get their GOAWAY.
const generationTime = time.Second

// generation is one grpc.Server and the connections that it serves. It is a net.Listener, which its server
// accepts from.
type generation struct {
	server   *grpc.Server
	conns    chan net.Conn
	done     chan struct{} // closed by Close
	once     sync.Once
	starting sync.WaitGroup // connections that grpc.Server has not begun with: it would close them in GracefulStop
	retiring *time.Timer    // set by the first connection during a drain
}

func (p *Plane) newGeneration() *generation {
	return &generation{
		server: p.newServer(grpc.ChainUnaryInterceptor(p.unary), grpc.ChainStreamInterceptor(p.stream)),
		conns:  make(chan net.Conn),
		done:   make(chan struct{}),
	}
}

// Accept implements net.Listener.
func (g *generation) Accept() (net.Conn, error) {
	select {
	case c := <-g.conns:
		return c, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (g *generation) Close() error {
	g.once.Do(func() { close(g.done) })
	return nil
}

// Addr implements net.Listener.
func (g *generation) Addr() net.Addr { return &net.TCPAddr{} }

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
		if p.current != nil || p.spare != nil || made != nil || p.ended {
			break
		}
		p.mu.Unlock()
		made = p.newGeneration() // without the lock: the function is the user's
	}
	if p.ended {
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
	select {
	case g.conns <- c:
	case <-g.done: // killed
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
		p.changed()
	}()
}
