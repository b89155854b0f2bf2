package hotrestart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// serveControl answers for this process as restart says, by a pid file, whose name it returns.
func serveControl(t *testing.T, restart func(context.Context) (int, error)) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pid")
	if err := os.WriteFile(file, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := listenControl(file)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: ControlHandler(restart)}
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return file
}

func TestRequestRestart(t *testing.T) {
	var pid int
	var failure error
	file := serveControl(t, func(context.Context) (int, error) { return pid, failure })

	pid = 4711
	if successor, predecessor, err := RequestRestart(t.Context(), file); err != nil || successor != 4711 || predecessor != os.Getpid() {
		t.Errorf("successor %d of %d, error %v", successor, predecessor, err)
	}
	pid, failure = 0, errors.New("the app ends with code 7")
	if _, _, err := RequestRestart(t.Context(), file); err == nil || !strings.Contains(err.Error(), "the app ends with code 7") {
		t.Errorf("error %v, want the reason", err)
	}
	failure = HandedOverError{Successor: 1 << 30} // which has ended
	if _, _, err := RequestRestart(t.Context(), file); err == nil || !strings.Contains(err.Error(), "process 1073741824") {
		t.Errorf("error %v, want the successor asked", err)
	}
	if err := os.WriteFile(file, []byte("1073741824\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := RequestRestart(t.Context(), file); err == nil || !strings.Contains(err.Error(), "is not a lastcall run with --pid-file") {
		t.Errorf("another program's number: error %v", err)
	}

	gone, end := context.WithCancel(t.Context())
	waiting := serveControl(t, func(ctx context.Context) (int, error) { end(); <-ctx.Done(); return 0, ctx.Err() })
	if _, _, err := RequestRestart(gone, waiting); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the caller's context", err)
	}
}

// Only root and the process's own user may connect.
func TestControlOfAnotherUser(t *testing.T) {
	file := serveControl(t, func(context.Context) (int, error) { t.Error("another user was heard"); return 0, nil })
	asAnotherUser(t, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: controlPath(file, os.Getpid())}); !errors.Is(err, unix.EACCES) {
			t.Errorf("another user connects: %v", err)
		}
		return nil
	})
}

// A socket of another user in the process's place is not believed.
func TestControlSquatted(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o777), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pid")
	if err := os.WriteFile(file, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	at := os.NewFile(uintptr(fd), "squatter")
	defer at.Close()
	asAnotherUser(t, func() error {
		return errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: controlPath(file, os.Getpid())}), unix.Listen(fd, 1))
	})
	ln, err := net.FileListener(at)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: ControlHandler(func(context.Context) (int, error) { return 4711, nil })}
	served := make(chan error)
	go func() { served <- server.Serve(ln) }()
	defer func() { _ = server.Close(); <-served }()
	pid, _, err := RequestRestart(t.Context(), file)
	if err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("process %d, %v: the squatter was believed", pid, err)
	}
}

// The socket of a process that was killed does not stay.
func TestControlStale(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40)) // longer than a socket's name may be
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pid")
	stale := controlPath(file, 1<<30)
	_, err := atSocket(stale, func(name string) (net.Listener, error) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err == nil {
			ln.SetUnlinkOnClose(false)
			err = ln.Close()
		}
		return ln, err
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := listenControl(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale socket: %v", err)
	}
	_ = ln.Close()
	if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// asAnotherUser runs f with the rights of user 65534. The system call alone changes this thread's user and no other's.
func asAnotherUser(t *testing.T, f func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	const keep = ^uintptr(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); errno != 0 {
		t.Skip("become another user:", errno)
	}
	err := f()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
		panic(errno)
	}
	if err != nil {
		t.Fatal(err)
	}
}
