package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli/clitest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/programtest"
)

func TestMain(m *testing.M) {
	// Most of these tests wait for timers of programs that they start.
	if err := flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))); err != nil {
		panic(err)
	}
	programtest.Main(m, map[string]func(){"lastcall": main, "hotapp": hotAppMain, "stopapp": stopAppMain})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"LISTEN", "STATUS", "ADMIN", "OTHER"} {
				address, err := freePort("127.0.0.1:0") // which no outgoing connection takes meanwhile
				if err != nil {
					return err
				}
				env.Setenv(name, portOf(address))
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

// hang sends a request that the app does not answer in time.
func (h *hot) hang() net.Conn {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.address)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprint(conn, "GET /delay/60000 HTTP/1.1\r\nHost: x\r\n\r\n")
	h.logged("hotapp: request with a delay", 1)
	return conn
}

// A cut decides the exit code of lastcall run, though the app ends by the SIGTERM that it gets.
func TestFailOnCut(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]int{"--fail-on-cut": 3, "--fail-on-cut=false": 0} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			h := startHot(t, "0", []string{"TERMINATION_GRACE_PERIOD_SECONDS=2"}, flag)
			h.hang()
			if err := h.first.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = h.first.Wait()
			h.logged("verdict=cut", 1)
			if code := h.first.ProcessState.ExitCode(); code != want {
				t.Errorf("exit code %d, want %d", code, want)
			}
			if _, err := os.Stat(h.pid); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the pid file stays behind: %v", err)
			}
		})
	}
}
