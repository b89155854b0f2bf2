package podtest

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"
)

// When the app is gone, so is its sidecar; and not before.
func TestEndsAfterTheApp(t *testing.T) {
	t.Parallel()
	p := start(t)
	stop := p.serve(answerAfter)
	database := p.Client.Listen(t, "tcp", p.Client.TCP6(5432))
	go func() {
		for {
			c, err := database.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	_ = p.sidecar.signal(syscall.SIGTERM) // a classic sidecar gets it together with the app
	p.logged("outbound connections stay open until the app exits")
	for i := range 20 { // the app's last words, each on a connection of its own
		c, err := p.Pod.Dial(context.Background(), "tcp", p.Client.TCP6(5432))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		word, answer := fmt.Sprintf("commit %02d", i), make([]byte, 9)
		fmt.Fprint(c, word)
		if _, err := io.ReadFull(c, answer); err != nil || string(answer) != word {
			t.Fatalf("%s: %q, %v", word, answer, err)
		}
		c.Close()
	}
	select {
	case <-p.sidecar.done:
		t.Fatal("the sidecar went before the app")
	default:
	}
	stop()
	gone := time.Now()
	p.left("clean")
	t.Logf("the sidecar left %v after the app", p.sidecar.Ended().Sub(gone).Round(time.Millisecond))
}

// What the app wrote just before its end reaches its destination, though that has not read any of it yet.
func TestLastBytes(t *testing.T) {
	t.Parallel()
	p := start(t)
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
	if err != nil {
		t.Fatal(err)
	}
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
