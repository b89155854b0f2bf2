package hotrestart

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The control socket is how `lastcall hot-restart --pid-file` sends its request to the process that the file names, and
// receives the outcome: a signal has no response. It is an abstract Unix socket, which ends with its process, and
// accepts root and the process's own user only.

const (
	controlURL      = "http://control/hot-restart"
	headerSuccessor = "Lastcall-Successor"
)

// controlName distinguishes the processes of all pid namespaces that share a network namespace, as a pod's containers
// do.
func controlName(pidFile string, pid int) (string, error) {
	path, err := filepath.Abs(pidFile)
	if err != nil {
		return "", err
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return fmt.Sprintf("@lastcall-%x", sha256.Sum256([]byte(namespace+"\x00"+path+"\x00"+strconv.Itoa(pid)))), nil
}

// controlListener accepts connections of root and of the process's own user only.
type controlListener struct{ *net.UnixListener }

func listenControl(pidFile string) (net.Listener, error) {
	name, err := controlName(pidFile, os.Getpid())
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for hot-restart --pid-file %s: %w", pidFile, err)
	}
	return controlListener{ln}, nil
}

func (l controlListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peerUID(conn); err == nil && (uid == 0 || uid == uint32(os.Geteuid())) {
			return conn, nil
		}
		_ = conn.Close()
	}
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
	name, err := controlName(pidFile, pid)
	if err != nil {
		return 0, "", 0, err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", name)
	if err != nil {
		if ctx.Err() != nil {
			return 0, "", 0, ctx.Err()
		}
		return 0, "", 0, fmt.Errorf("process %d, which %s names, is not a lastcall run with --pid-file %s", pid, pidFile, pidFile)
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
