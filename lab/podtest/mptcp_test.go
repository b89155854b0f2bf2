package podtest

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// A program that asks for Multipath TCP, client of the pod or the app itself, gets TCP, as from a server without it.
func TestMultipathTCP(t *testing.T) {
	t.Parallel()
	p := newPod(t, redirectOutbound...)
	p.startSidecar(nil)
	for _, c := range []struct {
		from, to *nettest.Namespace
		port     uint16
	}{{p.Client, p.Pod, 5433}, {p.Pod, p.Client, 5434}} {
		c.to.Answer(t, int(c.port), func(conn net.Conn) string {
			_, _ = io.Copy(io.Discard, conn) // a close with unread bytes would be a reset
			return "an answer"
		})
		for _, to := range []string{c.to.TCP4(c.port), c.to.TCP6(c.port)} {
			var conn net.Conn
			if err := c.from.Do(func() (err error) {
				d := net.Dialer{Timeout: patience}
				d.SetMultipathTCP(true)
				conn, err = d.Dial("tcp", to)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(conn, "a question")
			_ = conn.(*net.TCPConn).CloseWrite()
			if b, err := io.ReadAll(conn); err != nil || string(b) != "an answer" {
				t.Errorf("from the %s to %s: %q, %v", c.from.Name, to, b, err)
			}
			_ = conn.Close()
		}
	}
}
