package listen

import (
	"context"
	"net"
	"testing"
)

// For each connection that is accepted another one comes: the queue is never empty.
func TestTakeQueuedFromAQueueThatIsNeverEmpty(t *testing.T) {
	ln := listen(t)
	clients := make(chan net.Conn, 1)
	next := func() {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		clients <- c
	}
	next()
	taken := 0
	if err := TakeQueued(t.Context(), ln, func(c *net.TCPConn) {
		_ = c.Close()
		_ = (<-clients).Close()
		taken++
		next()
	}); err != nil {
		t.Fatal(err)
	}
	_ = (<-clients).Close()
	if taken != 1+latecomers {
		t.Errorf("%d connections were taken, want the one that was there and %d", taken, latecomers)
	}
	ctx, cancel := context.WithCancel(t.Context())
	next()
	taken = 0
	err := TakeQueued(ctx, ln, func(c *net.TCPConn) {
		_ = c.Close()
		_ = (<-clients).Close()
		if taken++; taken == 10 {
			cancel()
		}
		next()
	})
	_ = (<-clients).Close()
	if err == nil || taken != 10 {
		t.Errorf("%d connections were taken after the context had ended with 10: %v", taken, err)
	}
}
