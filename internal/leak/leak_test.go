package leak

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

func TestAwait(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM) // a goroutine of os/signal's own
	defer signal.Stop(signals)
	if left := await(patience); len(left) > 0 {
		t.Fatalf("before: %s", left)
	}
	release := make(chan struct{})
	go held(release)
	if left := await(time.Millisecond); len(left) != 1 || !strings.Contains(left[0], "leak.held") {
		t.Errorf("one is held: %q", left)
	}
	close(release)
	if left := await(patience); len(left) > 0 {
		t.Errorf("after: %s", left)
	}
}

func held(release chan struct{}) { <-release }
