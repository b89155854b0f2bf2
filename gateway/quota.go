package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

// quota bounds the connections to an endpoint, those that are being made included, or of all clients.
type quota struct {
	most int64 // 0: no limit
	now  atomic.Int64
}

var errOverflow = errors.New("it has as many connections as are allowed")

// take takes room for one more; false when there is none.
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

// admit is for httpdrain.Options.
func (q *quota) admit(nc net.Conn) net.Conn {
	c, ok := nc.(*net.TCPConn)
	if !ok || !q.take() {
		return nil
	}
	return &countedConn{TCPConn: c, quota: q}
}

// countedConn is one of a quota's.
type countedConn struct {
	*net.TCPConn
	quota *quota
	once  sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.quota.now.Add(-1) })
	return c.TCPConn.Close()
}
