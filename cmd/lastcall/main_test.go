package main

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli/clitest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for timers of programs that they start.
	if err := flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	programtest.Main(m, map[string]func(){"lastcall": main, "stopapp": stopAppMain})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"LISTEN", "STATUS", "ADMIN", "OTHER"} {
				env.Setenv(name, portOf(freeLoopback(t)))
			}
			env.Setenv("HOME", os.TempDir())
			env.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}

func TestDocumentedCommands(t *testing.T) { clitest.Documented(t, command(), "../..") }

func TestAgentBuildsItsCommandAlone(t *testing.T) {
	whole := len(command().Commands())
	for args, want := range map[string]int{"agent": 1, "run": whole, "__complete": whole, "--help": whole} {
		root := invoked([]string{args, "--inbound", ":0=127.0.0.1:1"})
		if got := len(root.Commands()); got != want {
			t.Errorf("lastcall %s builds %d commands, want %d", args, got, want)
		}
		if cmd, _, err := root.Find([]string{args}); args == "agent" && (err != nil || cmd.CommandPath() != "lastcall agent") {
			t.Errorf("lastcall agent is %v, %v", cmd, err)
		}
	}
}

// A cut decides the exit code of lastcall run, though the app ends by the SIGTERM that it gets.
func TestFailOnCut(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]int{"--fail-on-cut": 3, "--fail-on-cut=false": 0} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			s := runStopped(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TERMINATION_GRACE_PERIOD_SECONDS=2") },
				flag, "--", "stopapp", "{port}")
			s.request("/endless")
			_ = s.cmd.Process.Signal(syscall.SIGTERM)
			<-s.ended
			if log, _ := os.ReadFile(s.log); !strings.Contains(string(log), "verdict=cut") {
				t.Error("nothing was cut")
			}
			if code := s.cmd.ProcessState.ExitCode(); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
		})
	}
}
