package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/must"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_PARENT") != "" {
		c, err := Start(exec.Command("sleep", "60"))
		if err != nil {
			panic(err)
		}
		fmt.Println(c.Pid())
		select {}
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, script string) *Child {
	t.Helper()
	c, err := Start(exec.Command("sh", "-c", script))
	must.Do(t, err)
	t.Cleanup(func() { c.Kill(); <-c.Done() })
	return c
}

func TestCode(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143, "kill -KILL $$": 137} {
		c := start(t, script)
		if <-c.Done(); c.Code() != want {
			t.Errorf("%s: code %d; want %d", script, c.Code(), want)
		}
		if err := c.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("%s: a signal after the end: %v", script, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	if _, err := Start(exec.Command("/nowhere/app")); err == nil || !strings.Contains(err.Error(), "start /nowhere/app") {
		t.Fatal(err)
	}
}

func TestOwnGroup(t *testing.T) {
	c := start(t, "sleep 60")
	if group, err := syscall.Getpgid(c.Pid()); err != nil || group != c.Pid() {
		t.Fatalf("group %d, %v; want %d", group, err, c.Pid())
	}
}

// The child of a process that is killed goes with it.
func TestDiesWithParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "PROCESS_TEST_PARENT=1")
	out, err := parent.StdoutPipe()
	must.Do(t, err)
	must.Do(t, parent.Start())
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	must.Do(t, err)
	defer unix.Close(fd)
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); n != 1 {
		t.Fatalf("the child lives on: %d, %v", n, err)
	}
}

// Orphans are reaped; children with a waiter keep their exit code.
func TestReap(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip("subreaper:", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); reap(ctx) }()
	defer func() { cancel(); <-done }()

	cmd := exec.Command("sh", "-c", `(sh -c 'exit 3' & echo $!) ; exit 5`)
	// Not StdoutPipe: Wait, which Start calls, would close it before the line was read.
	out, in, err := os.Pipe()
	must.Do(t, err)
	defer out.Close()
	cmd.Stdout = in
	c, err := Start(cmd)
	must.Do(t, err)
	_ = in.Close()
	var orphan int
	if _, err := fmt.Fscan(bufio.NewReader(out), &orphan); err != nil {
		t.Fatal(err)
	}
	if <-c.Done(); c.Code() != 5 {
		t.Errorf("code %d; want 5", c.Code())
	}
	polltest.Eventually(t, "the orphan has ended", func() bool { return syscall.Kill(orphan, 0) != nil })
}

// TestOthers: a child of a child is not another process, and the parent is.
func TestOthers(t *testing.T) {
	if n, err := Others(); err != nil || n == 0 {
		t.Fatalf("%d, %v: want the machine's", n, err)
	}
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var grandchild int
	_, err = fmt.Fscan(out, &grandchild)
	defer func() {
		_ = syscall.Kill(grandchild, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	all, living := living()
	if err != nil || living != nil || all[grandchild] == nil {
		t.Fatalf("%v, %v: the process is not seen", err, living)
	}
	if own := os.Getpid(); !descends(grandchild, own, all) || !descends(own, own, all) ||
		descends(os.Getppid(), own, all) {
		t.Error("descendants are not distinguished from others")
	}
}
