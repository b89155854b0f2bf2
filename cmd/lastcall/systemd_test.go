package main

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
)

// systemd hears when the app serves, that lastcall is alive, and that it stops. The app has no variable of systemd.
func TestRunUnderSystemd(t *testing.T) {
	t.Parallel()
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"})
	must.Do(t, err)
	defer manager.Close()
	heard := func(what string) {
		t.Helper()
		b := make([]byte, 4096)
		for {
			must.Do(t, manager.SetReadDeadline(time.Now().Add(patience)))
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("the service manager has not heard %s: %v", what, err)
			}
			if strings.Contains(string(b[:n]), what) {
				return
			}
		}
	}
	s := runStopped(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+manager.LocalAddr().String(), "WATCHDOG_USEC=2000000")
	})
	heard("READY=1")
	heard("WATCHDOG=1")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG"} {
		if environ := textOf("http://" + s.address + "/environ"); environ == "" || strings.Contains(environ, name) {
			t.Errorf("the app's environment has %s: %s", name, environ)
		}
	}
	s.endsBy(func() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }, "SIGTERM")
	heard("STOPPING=1")
}
