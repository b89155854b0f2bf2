package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

// appMain is an app with a listener, until its standard input ends.
func appMain() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	fmt.Println("up")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// The app is seen by its sockets, before it comes, while it is there, and when it
// has gone.
func TestAwaitAppGone(t *testing.T) {
	n := nettest.New(t)
	result := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		result <- n.Pod.Do(func() error { return awaitAppGone(ctx, 50*time.Millisecond, false) })
	}()
	still := func(when string) {
		t.Helper()
		select {
		case err := <-result:
			t.Fatalf("%s: %v", when, err)
		case <-time.After(150 * time.Millisecond): // longer than it would have to be quiet
		}
	}
	still("before the app has come")

	app := exec.Command(os.Args[0])
	app.Env = append(os.Environ(), "AGENT_TEST_APP=1")
	in, _ := app.StdinPipe()
	out, _ := app.StdoutPipe()
	if err := n.Pod.Start(app); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	still("while the app is there")
	_ = in.Close()
	_ = app.Wait()
	select {
	case err := <-result:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("its end is not seen")
	}

	cancel()
	if err := awaitAppGone(ctx, time.Hour, true); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestOtherProcesses(t *testing.T) {
	before, err := otherProcesses()
	if err != nil || before == 0 {
		t.Fatalf("%d, %v: want the machine's", before, err)
	}
	if pid := os.Getpid(); !isOurs(pid, map[int]int{pid: 1}) || !isOurs(7, map[int]int{7: 8, 8: pid}) ||
		isOurs(7, map[int]int{7: 1, 1: 0}) {
		t.Error("our processes are not distinguished from others")
	}
}
