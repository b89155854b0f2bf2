package listen

import (
	"net"
	"testing"
)

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.(*net.TCPListener)
}

func dial(t *testing.T, ln net.Listener) {
	t.Helper()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

// Whatever is in the queue is taken, and nothing is waited for.
func TestTakeQueued(t *testing.T) {
	ln := listen(t)
	for _, n := range []int{0, 1, 20} {
		for range n {
			dial(t, ln)
		}
		taken := 0
		err := TakeQueued(t.Context(), ln, func(c *net.TCPConn) {
			taken++
			_ = c.Close()
		})
		if err != nil || taken != n {
			t.Fatalf("%d of %d connections were taken: %v", taken, n, err)
		}
	}
}
