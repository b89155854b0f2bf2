package hotrestart

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// manager is a service manager's end of the protocol.
func manager(t *testing.T, name string) (heard func() map[string]string) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return func() map[string]string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatalf("nothing heard: %v", err)
		}
		state := make(map[string]string)
		for line := range strings.SplitSeq(string(b[:n]), "\n") {
			name, value, _ := strings.Cut(line, "=")
			state[name] = value
		}
		return state
	}
}

// A socket with a path is in cmd/lastcall's TestHotRestartLosesNothing.
func TestAHotRestartAsSystemdHearsIt(t *testing.T) {
	heard := manager(t, "@lastcall-test-"+strconv.Itoa(os.Getpid()))
	n := NotifierFromEnvironment()

	if err := n.Ready("serving"); err != nil {
		t.Fatal(err)
	}
	if state := heard(); state["READY"] != "1" || state["STATUS"] != "serving" {
		t.Errorf("when ready: %v", state)
	}

	var before, after unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &before); err != nil {
		t.Fatal(err)
	}
	if err := n.Reloading(); err != nil {
		t.Fatal(err)
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &after); err != nil {
		t.Fatal(err)
	}
	state := heard()
	at, err := strconv.ParseInt(state["MONOTONIC_USEC"], 10, 64)
	if state["RELOADING"] != "1" || err != nil || at < before.Nano()/1000 || at > after.Nano()/1000 {
		t.Errorf("when reloading: %v, want a moment between %d and %d", state, before.Nano()/1000, after.Nano()/1000)
	}

	if err := n.HandedOver(4711); err != nil {
		t.Fatal(err)
	}
	if state := heard(); state["MAINPID"] != "" || state["STATUS"] != "serving (pid 4711)" || state["READY"] != "1" || state["WATCHDOG"] != "1" {
		t.Errorf("when handed over: %v", state)
	}

	// The old process is no longer the service.
	if err := n.Stopping(); err != nil {
		t.Fatal(err)
	}
	if err := NotifierFromEnvironment().Stopping(); err != nil {
		t.Fatal(err)
	}
	if state := heard(); state["STOPPING"] != "1" {
		t.Errorf("when another one stops: %v", state)
	}
}

func TestWithoutAServiceManager(t *testing.T) {
	for _, address := range []string{"", "vsock:2:1234", "relative"} {
		t.Setenv("NOTIFY_SOCKET", address)
		n := NotifierFromEnvironment()
		if n != nil {
			t.Errorf("NOTIFY_SOCKET=%q: %v, want none", address, n)
		}
		if err := errors.Join(n.Ready(""), n.Reloading(), n.HandedOver(1), n.Stopping()); err != nil {
			t.Errorf("without a service manager: %v", err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	if err := NotifierFromEnvironment().Ready(""); err == nil || !strings.Contains(err.Error(), "notify the service manager of READY=1") {
		t.Errorf("a socket that is gone: %v", err)
	}
}

func TestWatchdogTime(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, row := range []struct {
		name, µs, pid string
		tookOver      bool
		want          time.Duration
	}{
		{"not watched", "", "", false, 0},
		{"watched", "30000000", own, false, 30 * time.Second},
		{"watched, any process", "30000000", "", false, 30 * time.Second},
		{"another is watched", "30000000", "1", false, 0},
		{"the one before was watched", "30000000", "1", true, 30 * time.Second},
		{"nonsense", "soon", own, false, 0},
		{"never", "0", own, false, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", row.µs)
			t.Setenv("WATCHDOG_PID", row.pid)
			if got := WatchdogTime(row.tookOver); got != row.want {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

// The socket is outside virtual time: the test checks when alive is called, and that a failure sends no ping.
func TestWatchFeedsOnlyWhatIsAlive(t *testing.T) {
	heard := manager(t, filepath.Join(t.TempDir(), "notify"))
	n := NotifierFromEnvironment()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var checks []time.Duration
		var watching sync.WaitGroup
		watching.Go(func() {
			n.Watch(ctx, 20*time.Second, func(context.Context) error {
				if checks = append(checks, time.Since(began)); len(checks) == 2 {
					return errors.New("stuck")
				}
				if len(checks) == 3 {
					cancel()
				}
				return nil
			}, slog.New(slog.DiscardHandler))
		})
		watching.Wait()
		if want := []time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second}; !slices.Equal(checks, want) {
			t.Errorf("asked at %v, want %v", checks, want)
		}
	})
	for range 2 {
		if state := heard(); state["WATCHDOG"] != "1" || len(state) != 1 {
			t.Errorf("heard %v, want WATCHDOG=1 alone", state)
		}
	}
	if err := n.Stopping(); err != nil {
		t.Fatal(err)
	}
	if state := heard(); state["STOPPING"] != "1" {
		t.Errorf("heard %v: one ping too many", state)
	}
}
