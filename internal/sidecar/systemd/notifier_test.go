package systemd

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

	"go.uber.org/goleak"

	"github.com/lastcall-dev/lastcall/internal/sidecar/logs/logstest"
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A socket with a path is in cmd/lastcall's TestRunUnderSystemd.
func TestAServiceAsSystemdHearsIt(t *testing.T) {
	heard := manager(t, "@lastcall-test-"+strconv.Itoa(os.Getpid()))
	n := FromEnvironment(slog.Default())
	n.Ready()
	if state := heard(); state["READY"] != "1" || state["STATUS"] != "serving" {
		t.Errorf("when ready: %v", state)
	}
	n.Stopping()
	if state := heard(); state["STOPPING"] != "1" || state["STATUS"] != "draining" {
		t.Errorf("when stopping: %v", state)
	}
}

func TestWithoutAServiceManager(t *testing.T) {
	for _, address := range []string{"", "vsock:2:1234", "relative"} {
		t.Setenv("NOTIFY_SOCKET", address)
		n := FromEnvironment(slog.Default())
		if n != nil {
			t.Errorf("NOTIFY_SOCKET=%q: %v, want none", address, n)
		}
		n.Ready() // and does nothing
		n.Stopping()
	}
	var log logstest.Buffer
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	FromEnvironment(slog.New(slog.NewTextHandler(&log, nil))).Ready()
	if !strings.Contains(log.String(), `"cannot notify the service manager" of="READY=1"`) {
		t.Errorf("a socket that is gone: %s", &log)
	}
}

func TestWatchdogTime(t *testing.T) {
	own := strconv.Itoa(os.Getpid())
	for _, row := range []struct {
		name, µs, pid string
		want          time.Duration
	}{
		{"not watched", "", "", 0},
		{"watched", "30000000", own, 30 * time.Second},
		{"watched, any process", "30000000", "", 30 * time.Second},
		{"another is watched", "30000000", "1", 0},
		{"nonsense", "soon", own, 0},
		{"never", "0", own, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Setenv("WATCHDOG_USEC", row.µs)
			t.Setenv("WATCHDOG_PID", row.pid)
			if got := watchdogTime(); got != row.want {
				t.Errorf("got %v, want %v", got, row.want)
			}
		})
	}
}

// The socket is outside virtual time: the test checks when alive is called, and that a failure sends no ping.
func TestWatchFeedsOnlyWhatIsAlive(t *testing.T) {
	heard := manager(t, filepath.Join(t.TempDir(), "notify"))
	t.Setenv("WATCHDOG_USEC", "20000000")
	n := FromEnvironment(slog.New(slog.DiscardHandler))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var checks []time.Duration
		var watching sync.WaitGroup
		watching.Go(func() {
			n.Watch(ctx, func(context.Context) error {
				if checks = append(checks, time.Since(began)); len(checks) == 2 {
					return errors.New("stuck")
				}
				if len(checks) == 3 {
					cancel()
				}
				return nil
			})
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
	n.Stopping()
	if state := heard(); state["STOPPING"] != "1" {
		t.Errorf("heard %v: one ping too many", state)
	}
}
