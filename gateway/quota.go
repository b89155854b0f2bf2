package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// quota limits the connections to an endpoint, including those that are being made, or from all clients.
type quota struct {
	most int64 // 0: no limit
	now  atomic.Int64
}

var errOverflow = errors.New("connection limit reached")

// take counts one more connection. It returns false when the limit is reached.
func (q *quota) take() bool {
	if n := q.now.Add(1); q.most > 0 && n > q.most {
		q.now.Add(-1)
		return false
	}
	return true
}

func (q *quota) dial(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
	if !q.take() {
		return nil, errOverflow
	}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		q.now.Add(-1)
		return nil, err
	}
	return &countedConn{TCPConn: c.(*net.TCPConn), quota: q}, nil
}

// admit implements httpdrain.Options.Admit.
func (q *quota) admit(nc net.Conn) net.Conn {
	c, ok := nc.(*net.TCPConn)
	if !ok || !q.take() {
		return nil
	}
	return &countedConn{TCPConn: c, quota: q}
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	*net.TCPConn
	quota *quota
	once  sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.quota.now.Add(-1) })
	return c.TCPConn.Close()
}
