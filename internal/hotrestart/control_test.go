package hotrestart

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Only root and the process's own user may ask.
func TestControlOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("connecting as another user needs root")
	}
	file := serveControl(t, func(context.Context) (int, error) { t.Error("another user was heard"); return 0, nil })
	name, err := controlName(file, os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := os.NewFile(uintptr(fd), "control")
	defer conn.Close()

	// The system call alone changes this thread's user and no other's.
	const keep = ^uintptr(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); errno != 0 {
		t.Skip("become another user:", errno)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); errno != 0 {
		panic(errno)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprint(conn, "POST /hot-restart HTTP/1.1\r\nHost: control\r\n\r\n") // it may be closed already
	if answer, _ := io.ReadAll(conn); len(answer) > 0 {
		t.Errorf("answered %q", answer)
	}
}
