// Package programtest has the common parts of tests of whole programs: their scripts, a stalled reader of their output,
// how much memory they have taken, how their processor time grows.
package programtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

// Build returns the path of the program in the working folder, which it builds once, without the race detector, whose
// memory and time would be measured otherwise. The tests run by Main.
func Build(t *testing.T) string {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var build = sync.OnceValues(func() (program string, err error) {
	if builds, err = os.MkdirTemp("", "lastcall-program-"); err != nil {
		return "", err
	}
	program = filepath.Join(builds, "program")
	if out, err := exec.Command("go", "build", "-race=false", "-o", program, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return program, nil
})

// Write writes a program. A process that another goroutine starts meanwhile would have the file open until its exec,
// and the kernel runs no file that is open for writing.
func Write(t *testing.T, path string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
}

// builds is the folder of the program; empty before it is built.
var builds string

// cleaned are tests after which that folder is removed.
type cleaned struct{ testscript.TestingM }

func (c cleaned) Run() int {
	defer func() { _ = os.RemoveAll(builds) }()
	return c.TestingM.Run()
}

// Peak is how many bytes a running program has had resident at most (Linux).
func Peak(t *testing.T, program *exec.Cmd) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", program.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmHWM in %s", text)
	}
	kilobytes, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}

// Quantile returns the q-quantile of all, which must not be empty.
func Quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// Within has a program run in a cgroup with a limit of memory, in bytes, as a container does: beyond it the kernel
// kills the program. It is called before the program's start. Without the right to make a cgroup it reports false, and
// Peak is all that limits the program.
func Within(t *testing.T, program *exec.Cmd, limit int) bool {
	t.Helper()
	folder, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes" // version 1
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		folder, file = "/sys/fs/cgroup", "memory.max"
	}
	group, err := os.MkdirTemp(folder, "lastcall-test-")
	if err == nil {
		t.Cleanup(func() { removeGroup(t, group) })
		err = os.WriteFile(filepath.Join(group, file), fmt.Append(nil, limit), 0o644)
	}
	if err != nil {
		t.Logf("no cgroup limits the memory of the program: %v", err)
		return false
	}
	program.Args = append([]string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"),
		program.Path}, program.Args[1:]...)
	program.Path, program.Err = "/bin/sh", nil
	return true
}

// removeGroup waits until the programs of a cgroup have exited.
func removeGroup(t *testing.T, group string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if poll.Until(ctx, 10*time.Millisecond, func() bool {
		err = os.Remove(group)
		return err == nil || errors.Is(err, os.ErrNotExist)
	}) != nil {
		t.Errorf("remove the cgroup of the test: %v", err)
	}
}

// Main runs the tests of m, in which the given functions are the programs of their names.
func Main(m testscript.TestingM, programs map[string]func()) {
	// The race detector would hold each process for a second at its end.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	testscript.Main(cleaned{m}, programs)
}

// Scripts runs the scripts in testdata/script.
func Scripts(t *testing.T) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		},
	})
}

// FullPipe is a pipe that takes no further byte: its reader has stalled.
func FullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	for _, size := range []int{4096, 1} {
		if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = w.Write(make([]byte, size))
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	_ = w.Fd() // blocking for the program, as a container runtime's is
	return w
}
