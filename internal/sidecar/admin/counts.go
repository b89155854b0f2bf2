package admin

import (
	"net"
	"net/http"
	"sync/atomic"
)

// counts are the API's own connections and requests. Tools distinguish them from the data plane's by the name admin.
type counts struct {
	connections atomic.Uint64
	gone        atomic.Uint64
	begun       atomic.Uint64
	ended       [6]atomic.Uint64 // by hundreds of the status
}

// connection is http.Server's ConnState.
func (c *counts) connection(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		c.connections.Add(1)
	case http.StateClosed:
		c.gone.Add(1)
	}
}

func (c *counts) begin()         { c.begun.Add(1) }
func (c *counts) end(status int) { c.ended[status/100].Add(1) }
