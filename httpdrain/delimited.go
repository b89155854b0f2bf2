package httpdrain

import (
	"net/http"
	"strings"
)

// endsWithConnection reports whether only the end of the connection ends the body of the response: HTTP/1.0 without a
// length (RFC 9112, 6.3). x.mu is held.
func (x *exchange) endsWithConnection(status int) bool {
	switch {
	case x.c.h2 != nil, x.hasLength(), x.r.Method == http.MethodHead, status == http.StatusNoContent,
		status == http.StatusNotModified:
		return false
	}
	return !x.r.ProtoAtLeast(1, 1) || strings.EqualFold(x.own.Get("Transfer-Encoding"), "identity") // as net/http reads it
}

// tear makes the end of the connection a reset, if its response is half of a body that a FIN would complete. It must be
// called before anything that makes the handler, the server or TLS close the connection.
func (c *conn) tear() {
	if c.delimited.Load() {
		c.torn.Store(true)
	}
}

// reset closes the connection of a truncated response. Bytes that the client has not received are lost.
func (c *conn) reset() error {
	if lingers, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		_ = lingers.SetLinger(0)
	}
	return c.Conn.Close()
}
