package webhook

import (
	"net"
	"sync"
)

// bound limits open connections. It returns the connection to serve, or nil if there are too many.
func bound(connections int) func(net.Conn) net.Conn {
	open := newShares(connections)
	return func(nc net.Conn) net.Conn {
		from := host(nc.RemoteAddr().String())
		if !open.take(from, 1) {
			return nil
		}
		return &boundedConn{Conn: nc, close: sync.OnceFunc(func() { open.give(from, 1) })}
	}
}

// scraped is the plain port's listener.
type scraped struct {
	net.Listener
	admit func(net.Conn) net.Conn
}

func (l *scraped) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(nc); c != nil {
			return c, nil
		}
		_ = nc.Close()
	}
}

type boundedConn struct {
	net.Conn
	close func()
}

func (c *boundedConn) Close() error {
	defer c.close()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which half-closes before it closes.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// host is an address without its port.
func host(address string) string {
	if h, _, err := net.SplitHostPort(address); err == nil {
		return h
	}
	return address
}
