package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

// ran is a lastcall run of a script, in a folder of its own.
type ran struct {
	*exec.Cmd
	t   *testing.T
	dir string
}

// runScript starts lastcall run of a shell script, which a copy of the shell runs if program is not sh.
func runScript(t *testing.T, script, program string, flags ...string) *ran {
	t.Helper()
	r := &ran{t: t, dir: t.TempDir()}
	must.Do(t, os.WriteFile(filepath.Join(r.dir, "app"), []byte(script), 0o644))
	if program != "sh" {
		shell, err := os.ReadFile("/bin/sh")
		must.Do(t, err)
		programtest.Write(t, filepath.Join(r.dir, program), shell)
		program = "./" + program
	}
	host, port, _ := net.SplitHostPort(freeLoopback(t))
	args := append([]string{"run", "--status-address", host, "--status-port", port,
		"--termination-log", filepath.Join(r.dir, "message")}, flags...)
	r.Cmd = exec.Command("lastcall", append(args, "--", program, "app")...)
	r.Dir = r.dir
	log, err := os.Create(filepath.Join(r.dir, "log"))
	must.Do(t, err)
	defer log.Close()
	r.Stderr, r.Stdout = log, log
	must.Do(t, r.Start())
	t.Cleanup(func() { _ = r.Process.Kill(); _ = r.Wait() })
	return r
}

func (r *ran) read(file string) string {
	b, _ := os.ReadFile(filepath.Join(r.dir, file))
	return string(b)
}

// await waits until a file contains a text.
func (r *ran) await(file, text string) {
	r.t.Helper()
	polltest.Eventually(r.t, file+" has "+text, func() bool { return strings.Contains(r.read(file), text) })
}

// code waits for the end.
func (r *ran) code() int {
	_ = r.Wait()
	return r.ProcessState.ExitCode()
}

const message = `echo begun >state; until [ -e rest ]; do sleep 0.02; done; echo saved >state`

// As PID 1, a job that does not handle SIGTERM would keep its message: below lastcall run as well. One that does not
// end by itself is cut, and no verdict hides that.
func TestUnheard(t *testing.T) {
	t.Parallel()
	t.Run("ends by itself", func(t *testing.T) {
		t.Parallel()
		r := runScript(t, message, "sh")
		r.await("state", "begun")
		_ = r.Process.Signal(syscall.SIGTERM)
		r.await("log", "it is not sent before the last call")
		_ = os.WriteFile(filepath.Join(r.dir, "rest"), nil, 0o644)
		if code, state := r.code(), r.read("state"); code != 0 || state != "saved\n" {
			t.Errorf("code %d, state %q\n%s", code, state, r.read("log"))
		}
		if !strings.Contains(r.read("message"), `"verdict":"exited"`) {
			t.Errorf("termination message %s", r.read("message"))
		}
	})
	t.Run("a package manager's script", func(t *testing.T) {
		t.Parallel()
		r := runScript(t, "trap 'exit 0' TERM; sh -c '"+message+"' & wait", "npm")
		r.await("state", "begun")
		_ = r.Process.Signal(syscall.SIGTERM)
		r.await("log", "it is not sent before the last call")
		_ = os.WriteFile(filepath.Join(r.dir, "rest"), nil, 0o644)
		if _, state := r.code(), r.read("state"); state != "saved\n" {
			t.Errorf("state %q\n%s", state, r.read("log"))
		}
	})
	for name, wait := range map[string]string{
		"sigwait":  "signal.sigwait([signal.SIGTERM])",
		"signalfd": `while signal.SIGTERM not in signal.sigpending(): time.sleep(0.02)`, // blocked, as for it
	} {
		t.Run("waits for the signal by "+name, func(t *testing.T) {
			t.Parallel()
			r := runScript(t, `exec "`+peers.Need(t, "python")+`" -c '
import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open("state", "w").write("begun\n")
`+wait+`
open("state", "w").write("saved\n")'`, "sh")
			r.await("state", "begun")
			_ = r.Process.Signal(syscall.SIGTERM)
			code, state, m := r.code(), r.read("state"), r.read("message")
			if code != 0 || state != "saved\n" || !strings.Contains(m, `"verdict":"clean"`) {
				t.Errorf("code %d, state %q, %s\n%s", code, state, m, r.read("log"))
			}
		})
	}
	for name, c := range map[string]struct {
		script string
		flags  []string
		second bool // a second signal
		code   int
		log    string
	}{
		"never ends":           {script: message, flags: []string{"--grace-period", "2s"}, code: 143},
		"a second signal":      {script: message, second: true, code: 143},
		"fail on cut":          {script: message, flags: []string{"--grace-period", "2s", "--fail-on-cut"}, code: 3},
		"its signal is named":  {script: message, flags: []string{"--app-stop-signal", "TERM"}, code: 143},
		"ignores the signal":   {script: `trap "" TERM; ` + message, flags: []string{"--grace-period", "2s"}, code: 137},
		"hangs in its handler": {script: "trap : TERM; " + message, flags: []string{"--grace-period", "2s"}, code: 137},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runScript(t, c.script, "sh", c.flags...)
			r.await("state", "begun")
			if c.second {
				r.await("log", "the stop signal so far: it is not sent before the last call")
			}
			_ = r.Process.Signal(syscall.SIGTERM)
			if c.second {
				r.await("log", "it is not sent before the last call, or")
				polltest.Eventually(t, "the second signal ends it", func() bool {
					_ = r.Process.Signal(syscall.SIGTERM) // one within a second is the same
					return strings.Contains(r.read("log"), "second termination signal")
				})
			}
			if code := r.code(); code != c.code {
				t.Errorf("code %d, want %d\n%s", code, c.code, r.read("log"))
			}
			if m := r.read("message"); !strings.Contains(m, `"verdict":"cut"`) || strings.Contains(r.read("log"), "verdict=clean") {
				t.Errorf("termination message %s\n%s", m, r.read("log"))
			}
		})
	}
}

// An app that reloads at its stop signal is named so; uWSGI, which is known for it, gets the signal that ends it.
func TestReloadsAtStop(t *testing.T) {
	t.Parallel()
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		r := runScript(t, "trap 'exec sh app' TERM; echo $$ >>starts; while :; do sleep 0.02; done", "sh", "--grace-period", "2s")
		r.await("starts", "\n")
		_ = r.Process.Signal(syscall.SIGTERM)
		if code := r.code(); code != 137 {
			t.Errorf("code %d\n%s", code, r.read("log"))
		}
		if !strings.Contains(r.read("log"), "the app has reloaded at its stop signal instead of ending") ||
			!strings.Contains(r.read("message"), "the app has reloaded at SIGTERM instead of ending") {
			t.Errorf("%s\n%s", r.read("message"), r.read("log"))
		}
	})
	t.Run("uWSGI", func(t *testing.T) {
		t.Parallel()
		r := runScript(t, "trap 'exec ./uwsgi app' TERM; trap 'exit 0' INT; echo $$ >>starts; while :; do sleep 0.02; done", "uwsgi")
		r.await("starts", "\n")
		_ = r.Process.Signal(syscall.SIGTERM)
		if code := r.code(); code != 0 || !strings.Contains(r.read("log"), "the app reloads at SIGTERM, as uWSGI does") {
			t.Errorf("code %d\n%s", code, r.read("log"))
		}
		if n := strings.Count(r.read("starts"), "\n"); n != 1 || strings.Contains(r.read("message"), "faults") {
			t.Errorf("started %d times, %s", n, r.read("message"))
		}
	})
}
