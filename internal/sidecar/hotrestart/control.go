package hotrestart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The control socket is how `lastcall hot-restart --pid-file` sends its request to the process that the file names, and
// receives the outcome: a signal has no response. It is a Unix socket next to the pid file, so that a user who may not
// write there cannot take its place, and each side accepts root and the service's own user only.

const (
	controlURL      = "http://control/hot-restart"
	headerSuccessor = "Lastcall-Successor"
)

// controlPath is the socket of the process that a pid file names.
func controlPath(pidFile string, pid int) string { return pidFile + "." + strconv.Itoa(pid) + ".sock" }

// atSocket calls f with a name for a socket's path: the kernel accepts no more than 107 bytes.
func atSocket[T any](path string, f func(name string) (T, error)) (none T, err error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return none, err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// controlListener accepts connections of root and of the process's own user only.
type controlListener struct {
	*net.UnixListener
	path string
}

func listenControl(pidFile string) (_ net.Listener, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("listen for hot-restart --pid-file %s: %w", pidFile, err)
		}
	}()
	pidFile, err = filepath.Abs(pidFile)
	if err != nil {
		return nil, err
	}
	removeStale(pidFile)
	path := controlPath(pidFile, os.Getpid())
	return atSocket(path, func(name string) (net.Listener, error) {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			return nil, err
		}
		ln.SetUnlinkOnClose(false) // Close does, since the name ends with this function
		if err := os.Chmod(path, 0o600); err != nil {
			return nil, errors.Join(err, ln.Close())
		}
		return controlListener{ln, path}, nil
	})
}

// removeStale removes the sockets of processes that were killed.
func removeStale(pidFile string) {
	paths, _ := filepath.Glob(pidFile + ".*.sock")
	for _, path := range paths {
		conn, err := atSocket(path, func(name string) (net.Conn, error) { return net.Dial("unix", name) })
		if err == nil {
			_ = conn.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			_ = os.Remove(path)
		}
	}
}

// Close is net.Listener's.
func (l controlListener) Close() error {
	return errors.Join(l.UnixListener.Close(), removeIfThere(l.path))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (l controlListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(conn); err == nil && isTrusted(uid, uint32(os.Geteuid())) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

func isTrusted(uid, owner uint32) bool { return uid == 0 || uid == owner }

// dialControl connects to the process that a pid file names. The file's owner is the service's user.
func dialControl(ctx context.Context, pidFile string, pid int) (net.Conn, error) {
	info, err := os.Stat(pidFile)
	if err != nil {
		return nil, err
	}
	conn, err := atSocket(controlPath(pidFile, pid), func(name string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", name)
	})
	if err != nil {
		return nil, err
	}
	uid, err := peerUID(conn.(*net.UnixConn))
	if owner := info.Sys().(*syscall.Stat_t).Uid; err == nil && !isTrusted(uid, owner) {
		err = fmt.Errorf("its socket belongs to user %d, and the pid file to user %d", uid, owner)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func peerUID(conn *net.UnixConn) (uid uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	outer := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(outer, err); err != nil {
		return 0, err
	}
	return peer.Uid, nil
}

// HandedOverError reports that a process already has a successor, which takes the next request.
type HandedOverError struct{ Successor int }

func (e HandedOverError) Error() string {
	return fmt.Sprintf("process %d has already taken over", e.Successor)
}

// ControlHandler answers requests from RequestRestart. restart returns the successor's process number.
func ControlHandler(restart func(context.Context) (pid int, err error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pid, err := restart(r.Context())
		var handed HandedOverError
		switch {
		case errors.As(err, &handed):
			w.Header().Set(headerSuccessor, strconv.Itoa(handed.Successor))
			http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			w.Header().Set(headerSuccessor, strconv.Itoa(pid))
		}
	})
}

// RequestRestart requests a hot restart of the process that pidFile names. It returns the successor's process number
// once that serves, and that of its predecessor, which then still drains.
func RequestRestart(ctx context.Context, pidFile string) (successor, predecessor int, err error) {
	if predecessor, err = ReadPIDFile(pidFile); err != nil {
		return 0, 0, err
	}
	for {
		status, body, next, err := askControl(ctx, pidFile, predecessor)
		switch {
		case err != nil:
			return 0, 0, err
		case status == http.StatusOK && next > 0:
			return next, predecessor, nil
		case status == http.StatusMisdirectedRequest && next > 0:
			predecessor = next // it restarts once its own predecessor has drained
		default:
			return 0, 0, fmt.Errorf("no hot restart of process %d: %s", predecessor, body)
		}
	}
}

func askControl(ctx context.Context, pidFile string, pid int) (status int, body string, next int, err error) {
	conn, err := dialControl(ctx, pidFile, pid)
	if err != nil {
		if ctx.Err() != nil {
			return 0, "", 0, ctx.Err()
		}
		return 0, "", 0, fmt.Errorf("process %d, which %s names, is not a lastcall run with --pid-file %s: %w", pid, pidFile,
			pidFile, err)
	}
	transport := &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true,
	}
	defer conn.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, controlURL, nil)
	if err != nil {
		return 0, "", 0, err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		if ctx.Err() != nil {
			return 0, "", 0, ctx.Err()
		}
		return 0, "", 0, fmt.Errorf("process %d exited before it responded: %w", pid, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxMessage))
	if err != nil {
		return 0, "", 0, fmt.Errorf("read the response of process %d: %w", pid, err)
	}
	next, _ = strconv.Atoi(response.Header.Get(headerSuccessor))
	return response.StatusCode, strings.TrimSpace(string(text)), next, nil
}
