package nettest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greet answers every connection with a line.
func greet(ln net.Listener, line string) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, line)
		_ = conn.Close()
	}
}

func TestWire(t *testing.T) {
	n := New(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	outside := n.Client.AddAddress(t, "192.0.2.7/32")
	go greet(n.Pod.Listen(t, "tcp", ":8080"), "pod")
	go greet(n.Client.Listen(t, "tcp", ":80"), "client")
	for _, c := range []struct {
		from        *Namespace
		to, answers string
	}{
		{n.Client, n.Pod.TCP4(8080), "pod"},
		{n.Client, n.Pod.TCP6(8080), "pod"},
		{n.Pod, n.Client.TCP4(80), "client"},
		{n.Pod, n.Client.TCP6(80), "client"},
		{n.Pod, outside.String() + ":80", "client"},
		{n.Pod, "127.0.0.1:8080", "pod"},
	} {
		conn, err := c.from.Dial(ctx, "tcp", c.to)
		if err != nil {
			t.Fatalf("from %s to %s: %v", c.from.Name, c.to, err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || string(got) != c.answers {
			t.Errorf("from %s to %s: %q, %v; want %q", c.from.Name, c.to, got, err, c.answers)
		}
		_ = conn.Close()
	}
}

func TestTwoAtOnce(t *testing.T) {
	one, two := New(t), New(t)
	one.Pod.Listen(t, "tcp", ":8080")
	two.Pod.Listen(t, "tcp", ":8080")
}

func TestStartAs(t *testing.T) {
	n := New(t)
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "id -u; id -g; readlink /proc/self/ns/net")
	cmd.Stdout = &out
	if err := n.Pod.As(1337, 1338).Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	inside, err := os.Readlink(threadNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(out.String()); len(got) != 3 || got[0] != "1337" || got[1] != "1338" || got[2] == inside {
		t.Errorf("the child says %q; want 1337, 1338 and a namespace other than %s", got, inside)
	}
}

func TestThreadComesHome(t *testing.T) {
	n := New(t)
	inode := func(path string) uint64 {
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Ino
	}
	home := inode("/proc/self/ns/net")
	for range 50 {
		err := n.Pod.As(1337, 1337).Do(func() error {
			if got := inode(threadNamespace); got == home || got != inode(n.Pod.Path()) {
				t.Errorf("in namespace %d, home is %d, the pod's is %d", got, home, inode(n.Pod.Path()))
			}
			if uid, _ := unix.SetfsuidRetUid(-1); uid != 1337 {
				t.Errorf("user %d; want 1337", uid)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		if got := inode("/proc/self/task/" + thread.Name() + "/ns/net"); got != home {
			t.Errorf("thread %s stayed in namespace %d", thread.Name(), got)
		}
	}
}

// A server gets the port, repeatedly; no other socket does.
func TestFreeAddress(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		address := FreeAddress(t, host)
		for range 2 {
			ln, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			_ = ln.Close()
		}
		another := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0) })
		}}
		if ln, err := another.Listen(context.Background(), "tcp", address); err == nil {
			_ = ln.Close()
			t.Errorf("%s is given to a socket that does not share", address)
		}
		local, _ := net.ResolveTCPAddr("tcp", address)
		if conn, err := net.DialTCP("tcp", local, local); err == nil {
			_ = conn.Close()
			t.Errorf("%s is given to a connection", address)
		}
	}
}
