package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// What a shell or a package manager has started gets the stop signal, and the time to save its state, as well: run waits
// for it.
func TestAppGroup(t *testing.T) {
	t.Parallel()
	const server = `trap "sleep 0.3; echo saved >$STATE; exit 0" TERM; echo $$ >$PID; while :; do sleep 0.05; done`
	npm := "#!/bin/sh\ntrap 'exit 0' TERM\nsh -c \"$SERVER\" & while :; do wait; done\n"
	for name, c := range map[string]struct {
		app  []string
		want string
	}{
		"a shell":                        {[]string{"sh", "-c", `sh -c "$SERVER"; echo done`}, "saved\n"},
		"a package manager":              {[]string{"./npm", "start"}, "saved\n"},
		"ends while others live":         {[]string{"sh", "-c", `trap "exit 0" TERM; sh -c "$SERVER" & while :; do wait; done`}, "saved\n"},
		"a shell that passes it on":      {[]string{"sh", "-c", `trap 'kill $!; wait; exit 0' TERM; sh -c "$SERVER" & wait`}, "saved\n"},
		"the app's own process, by flag": {[]string{"--app-stop-alone", "--", "sh", "-c", `sh -c "$SERVER"; echo done`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			state, pidFile := filepath.Join(dir, "state"), filepath.Join(dir, "pid")
			programtest.Write(t, filepath.Join(dir, "npm"), []byte(npm))
			args := c.app
			if args[0] != "--app-stop-alone" {
				args = append([]string{"--"}, args...)
			}
			host, port, _ := net.SplitHostPort(freeLoopback(t))
			cmd := exec.Command("lastcall", append([]string{"run", "--status-address", host, "--status-port", port}, args...)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "STATE="+state, "PID="+pidFile, "SERVER="+server)
			out, err := os.Create(filepath.Join(dir, "log"))
			must.Do(t, err)
			defer out.Close()
			cmd.Stderr = out
			must.Do(t, cmd.Start())
			var pid int
			polltest.Eventually(t, "the server runs", func() bool {
				b, _ := os.ReadFile(pidFile)
				pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
				return pid > 0
			})
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			log, _ := os.ReadFile(out.Name())
			if c.want == "" {
				if syscall.Kill(pid, syscall.SIGKILL) != nil {
					t.Errorf("the server has ended as well:\n%s", log)
				}
				return
			}
			if got, _ := os.ReadFile(state); string(got) != c.want {
				t.Errorf("state %q, want %q\n%s", got, c.want, &log)
			}
			if stat := process.Stat(pid); len(stat) > 0 && stat[0] != "Z" {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Errorf("the server lives on\n%s", log)
			}
		})
	}
}
