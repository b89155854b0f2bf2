package sockdiag

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
)

// In a network namespace of its own: the machine's other programs come and go.
func TestOthers(t *testing.T) {
	if os.Getenv("SOCKDIAG_ALONE") == "" {
		alone := exec.Command(os.Args[0], "-test.run=^TestOthers$", "-test.v")
		alone.Env = append(os.Environ(), "SOCKDIAG_ALONE=1")
		alone.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := alone.CombinedOutput()
		if errors.Is(err, os.ErrPermission) {
			t.Skip("a network namespace needs root: ", err)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	loopbackUp(t)
	table := table(t)
	before, err := table.Others()
	if err != nil {
		t.Fatal(err)
	}
	ln, _ := listen(t, "127.0.0.1:0") // ours: counts for nothing
	pair(t, ln)
	if now, err := table.Others(); err != nil || now != before {
		t.Errorf("with sockets of our own: %d, %v; want %d", now, err, before)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	other := exec.Command(python, "-c", "import socket,sys\ns=socket.create_server(('127.0.0.1',0))\nprint('up',flush=True)\nsys.stdin.read()")
	in, _ := other.StdinPipe()
	out, _ := other.StdoutPipe()
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = other.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if now, err := table.Others(); err != nil || now <= before {
		t.Errorf("with another's listener: %d, %v; want more than %d", now, err, before)
	}
	_ = in.Close()
	_ = other.Wait()
	polltest.Eventually(t, "another's listener no longer counts", func() bool {
		now, _ := table.Others()
		return now <= before
	})
}

func loopbackUp(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}
