package programtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/poll"
)

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
