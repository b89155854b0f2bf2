package tcp

import (
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func TestDialLoopback(t *testing.T) {
	at6 := nettest.FreeAddress(t, "::1") // a port of [::1]:0 may have another test's listener at 127.0.0.1
	address := strings.Replace(at6, "[::1]", "127.0.0.1", 1)
	ln6 := nettest.Listen(t, at6)
	c, err := DialLoopback(t.Context(), "tcp", address)
	must.Do(t, err)
	if got := c.RemoteAddr().String(); got != ln6.Addr().String() {
		t.Errorf("connected to %s, want %s", got, ln6.Addr())
	}
	_ = c.Close()

	ln4 := nettest.Listen(t, address)
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
