package sideport

import "net"

// Admit bounds the open connections of a server that accepts them itself: it returns the connection to serve. At the
// limit the oldest one of the address with the most is ended, so a new one is always served.
func Admit(limit int) func(net.Conn) net.Conn {
	open := NewSlots(limit)
	return func(c net.Conn) net.Conn {
		return &admitted{c, open.Take(c.RemoteAddr().String(), 1, func() { _ = c.Close() })}
	}
}

type admitted struct {
	net.Conn
	slot *Slot
}

// Close is net.Conn's.
func (c *admitted) Close() error {
	c.slot.Release()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which half-closes before it closes.
func (c *admitted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
