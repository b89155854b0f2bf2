package podtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tcp"
)

// The app's own connections are not redirected by default: what is refused is refused, and a bound source address stays.
func TestOutboundIsDirect(t *testing.T) {
	t.Parallel()
	p := start(t)
	for _, to := range []string{p.Client.TCP4(1), p.Client.TCP6(1)} {
		c, err := p.Pod.Dial(t.Context(), "tcp", to)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("to %s, a port without a listener: %v; want refused", to, err)
		}
	}
	p.Client.Answer(t, 5432, func(c net.Conn) string { return tcp.AddrPort(c.RemoteAddr()).Addr().String() })
	for prefix, to := range map[string]string{"10.77.0.22/24": p.Client.TCP4(5432), "fd00:77::22/64": p.Client.TCP6(5432)} {
		second := p.Pod.AddAddress(t, prefix)
		if got := p.Pod.Receive(t, second, to); got != second.String() {
			t.Errorf("the app connects from %v, and comes from %s", second, got)
		}
	}
}

// Where they are redirected, what the app says to others goes through the sidecar, which the other side
// does not see: it comes from the pod.
func TestOutbound(t *testing.T) {
	t.Parallel()
	p := newPod(t, redirectOutbound...)
	p.startSidecar(nil)
	for _, address := range []string{p.Client.TCP4(5432), p.Client.TCP6(5432)} {
		ln := p.Client.Listen(t, "tcp", address)
		came := make(chan string, 1)
		go func() {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			b, _ := io.ReadAll(c)
			fmt.Fprint(c, "got it")
			came <- string(b)
		}()
		c, err := p.Pod.Dial(context.Background(), "tcp", address)
		must.Do(t, err)
		fmt.Fprint(c, "a query")
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); err != nil || string(b) != "got it" || <-came != "a query" {
			t.Errorf("%s: %q, %v", address, b, err)
		}
		c.Close()
	}
	if n := p.metric("lastcall_outbound_connections_total"); n != "2" {
		t.Errorf("%s outbound connections were counted; want 2", n)
	}
	// If a destination refuses the connection, the app gets a reset of the connection that the pipe had accepted.
	c, err := p.Pod.Dial(context.Background(), "tcp", p.Client.TCP4(1))
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.ReadAll(c)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("of a destination that refuses: %v; want a reset", err)
	}
}
