package tcp

import (
	"net"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

func TestDialLoopback(t *testing.T) {
	ln6, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("there is no IPv6: ", err)
	}
	_, port, _ := net.SplitHostPort(ln6.Addr().String())
	address := net.JoinHostPort("127.0.0.1", port)
	c, err := DialLoopback(t.Context(), "tcp", address)
	must.Do(t, err)
	if got := c.RemoteAddr().String(); got != ln6.Addr().String() {
		t.Errorf("connected to %s, want %s", got, ln6.Addr())
	}
	_ = c.Close()

	ln4, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip("another program has the port: ", err)
	}
	c, err = DialLoopback(t.Context(), "tcp", address)
	must.Do(t, err)
	if got := c.RemoteAddr().String(); got != address {
		t.Errorf("connected to %s, want %s", got, address)
	}
	_ = c.Close()

	_, _ = ln4.Close(), ln6.Close()
	if _, err := DialLoopback(t.Context(), "tcp", address); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("nothing listens: %v", err)
	}
}
