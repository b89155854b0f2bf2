package podtest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// families runs a test for the pod's IPv4 and for its IPv6 address, each with a pod of its own.
func families(t *testing.T, f func(t *testing.T, p *pod, address func(port uint16) string)) {
	t.Parallel()
	for _, family := range []string{"IPv4", "IPv6"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			address := p.Pod.TCP4
			if family == "IPv6" {
				address = p.Pod.TCP6
			}
			f(t, p, address)
		})
	}
}

// greeting is how a server that speaks first begins.
const greeting = "8.0.36\n"

// serveFirst runs a server that sends a greeting, and then echoes. It returns how each conversation ended.
func (p *pod) serveFirst(port uint16) (stop func(), endings <-chan error) {
	ln := p.Pod.Listen(p.t, "tcp", fmt.Sprintf(":%d", port))
	ended := make(chan error, 64)
	nettest.Each(p.t, ln, func(c net.Conn) {
		_, _ = io.WriteString(c, greeting)
		_, err := io.Copy(c, c)
		ended <- err
	})
	leave := p.present()
	return func() { _ = ln.Close(); leave() }, ended
}

// Server-first TCP: the conversation continues to its own end, then the sidecar exits.
func TestDrainServerFirst(t *testing.T) {
	families(t, func(t *testing.T, p *pod, address func(uint16) string) {
		stop, endings := p.serveFirst(3306)
		c := p.keepAlive(address(3306))
		if line, err := c.R.ReadString('\n'); err != nil || line != greeting {
			t.Fatalf("greeting %q, %v", line, err)
		}
		_ = p.sidecar.Terminate()
		p.logged("phase=waiting")
		for i := range 3 {
			query := fmt.Sprintf("query %d\n", i)
			_, _ = io.WriteString(c, query)
			if line, err := c.R.ReadString('\n'); err != nil || line != query {
				t.Fatalf("%q in answer to %q, %v", line, query, err)
			}
		}
		if strings.Contains(p.sidecar.log.String(), "phase=done") {
			t.Error("the drain had ended before the conversation")
		}
		_ = c.Close()
		if err := <-endings; err != nil {
			t.Errorf("the server's end of it: %v", err)
		}
		p.logged("outbound connections stay open until the app exits")
		stop()
		p.left("clean")
	})
}
