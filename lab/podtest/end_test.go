package podtest

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// What the app wrote just before its end reaches its destination, though that has not read any of it yet.
func TestLastBytes(t *testing.T) {
	t.Parallel()
	p := newPod(t, redirectOutbound...)
	p.startSidecar(nil)
	stop := p.serve(answerAfter)
	database := p.Client.Listen(t, "tcp", p.Client.TCP4(5432))
	const size = 1 << 20
	gone, got := make(chan struct{}), make(chan error, 1)
	go func() {
		c, err := database.Accept()
		if err != nil {
			got <- err
			return
		}
		defer c.Close()
		<-gone
		n, err := io.Copy(io.Discard, c)
		if err == nil && n != size {
			err = fmt.Errorf("%d bytes of %d", n, size)
		}
		got <- err
	}()
	c, err := p.Pod.Dial(context.Background(), "tcp", p.Client.TCP4(5432))
	must.Do(t, err)
	_ = p.sidecar.signal(syscall.SIGTERM)
	p.logged("outbound connections stay open until the app exits")
	if _, err := c.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	c.Close()
	stop()
	p.logged(`msg="app exited"`)
	close(gone)
	if err := <-got; err != nil {
		t.Error(err)
	}
	p.left("clean")
}
