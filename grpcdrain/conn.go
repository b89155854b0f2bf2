package grpcdrain

import (
	"net"
	"sync"
	"time"
)

// handshakeTime is how long a connection may take to be set up (TLS, HTTP/2 preface) once its server is
// retired: GracefulStop sends no GOAWAY before every handshake has ended.
const handshakeTime = 2 * time.Second

// conn is a client's connection, below TLS.
type conn struct {
	net.Conn
	p      *Plane
	began  time.Time
	addr   func() net.Addr
	unique net.Addr // the result of addr; guarded by Plane.mu

	mu       sync.Mutex  // guards the fields below
	server   *generation // nil until it is handed to one; written with Plane.mu held, too
	state    connState
	deadline time.Time // of the handshake, as grpc.Server has set it
	limit    time.Time // of the handshake, since the server was retired
}

type connState int

const (
	queued      connState = iota // grpc.Server has not begun with it
	handshaking                  // until grpc.Server clears the deadline
	established
	closed
)

// accepted takes a new connection. It implements the callback of listen.New.
func (p *Plane) accepted(nc net.Conn) net.Conn {
	setUserTimeout(nc)
	c := &conn{Conn: nc, p: p, began: time.Now()}
	c.addr = sync.OnceValue(c.uniqueAddr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	p.waiting++
	p.mu.Changed()
	return c
}

// NetConn returns the connection that the listener accepted, for credentials that need its socket.
func (c *conn) NetConn() net.Conn { return c.Conn }

// RemoteAddr returns an address whose identity leads from a call's peer to its connection.
func (c *conn) RemoteAddr() net.Addr { return c.addr() }

// uniqueAddr is not called in accepted, since a listener for the PROXY protocol reads the address from the client.
func (c *conn) uniqueAddr() (addr net.Addr) {
	switch a := c.Conn.RemoteAddr().(type) {
	case nil:
		return nil
	case *net.TCPAddr:
		same := *a
		addr = &same
	case *net.UnixAddr:
		same := *a
		addr = &same
	default:
		addr = &otherAddr{a}
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if _, open := c.p.conns[c]; open {
		c.unique, c.p.byAddr[addr] = addr, c
	}
	return addr
}

type otherAddr struct{ net.Addr }

// SetDeadline is called by grpc.Server when it begins with the connection, and with the zero time when
// the handshake has ended.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == queued:
		c.state = handshaking
		c.server.starting.Done()
	case c.state == handshaking && t.IsZero():
		c.state = established
	}
	c.deadline = t
	return c.applyDeadline()
}

// limitHandshake ends the handshake at t if it has not ended before.
func (c *conn) limitHandshake(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == handshaking {
		c.limit = t
		_ = c.applyDeadline()
	}
}

// applyDeadline is called with c.mu held.
func (c *conn) applyDeadline() error {
	t := c.deadline
	if c.state == handshaking && !c.limit.IsZero() && (t.IsZero() || c.limit.Before(t)) {
		t = c.limit
	}
	return c.Conn.SetDeadline(t)
}

func (c *conn) Close() error {
	c.mu.Lock()
	was, server := c.state, c.server
	c.state = closed
	c.mu.Unlock()
	if was == closed {
		return net.ErrClosed
	}
	if was == queued && server != nil {
		server.starting.Done()
	}
	err := c.Conn.Close()
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	delete(c.p.conns, c)
	delete(c.p.byAddr, c.unique)
	if server == nil {
		c.p.waiting--
	}
	c.p.mu.Changed()
	return err
}
