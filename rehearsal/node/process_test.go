package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
)

func newNode(t *testing.T) *Node {
	t.Helper()
	n := New()
	t.Cleanup(n.Close)
	return n
}

// shell starts a script and waits until it has written "ready".
func shell(t *testing.T, n *Node, script string) (*Process, string) {
	t.Helper()
	return ready(t, n, Command{Args: []string{"/bin/sh", "-c", script}})
}

// ready starts a program and waits for its first output.
func ready(t *testing.T, n *Node, c Command) (*Process, string) {
	t.Helper()
	r, w, err := os.Pipe()
	must.Do(t, err)
	t.Cleanup(func() { _ = r.Close() }) // a write to a closed pipe would end the program
	c.Output = fmt.Sprintf("/proc/self/fd/%d", w.Fd())
	p, err := n.Start(c)
	_ = w.Close()
	must.Do(t, err)
	b := make([]byte, 100)
	size, err := r.Read(b)
	if err != nil {
		t.Fatal("no output: ", err)
	}
	return p, strings.TrimSpace(string(b[:size]))
}

func TestProcessEnds(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		name, script string
		stop         func(*Process) error
		want         string
	}{
		{"by SIGTERM", "echo ready; exec sleep 60", (*Process).Terminate, "SIGTERM"},
		{"by SIGKILL", "echo ready; exec sleep 60", (*Process).Kill, "SIGKILL"},
		{"with its own code at SIGTERM", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", (*Process).Terminate, "exit 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := shell(t, n, tt.script)
			must.Do(t, tt.stop(p))
			if got := p.Ending(); got != tt.want {
				t.Errorf("it ended by %s, want %s", got, tt.want)
			}
			if p.Ended().IsZero() {
				t.Error("no time of its end")
			}
			if err := p.Terminate(); err != nil {
				t.Error("a signal after the end:", err)
			}
		})
	}
}

// The rest of a container ends with its PID 1, as with a PID namespace: its group, and what has left the group.
func TestGroupEndsWithItsLeader(t *testing.T) {
	for name, script := range map[string]string{
		"in its group":            "sleep 60 >/dev/null & echo $!; exec sleep 60 >/dev/null",
		"in a session of its own": "setsid sh -c 'echo $$; exec sleep 60 >/dev/null' & exec sleep 60 >/dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p, child := shell(t, n, script)
			pid, err := strconv.Atoi(child)
			must.Do(t, err)
			must.Do(t, p.Terminate())
			<-p.Done()
			gone(t, pid)
		})
	}
}

// gone waits until a process that is not our child has ended, or is a zombie of its parent.
func gone(t *testing.T, pid int) {
	t.Helper()
	polltest.Eventually(t, fmt.Sprintf("end of process %d", pid), func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

func TestCloseLeavesNothing(t *testing.T) {
	n := New()
	stubborn, child := shell(t, n, "trap '' TERM; sleep 60 >/dev/null & echo $!; wait")
	n.Close()
	if got := stubborn.Ending(); got != "SIGKILL" {
		t.Errorf("it ended by %s", got)
	}
	pid, err := strconv.Atoi(child)
	must.Do(t, err)
	gone(t, pid)
	if _, err := n.Start(Command{Args: []string{"true"}}); !errors.Is(err, errClosed) {
		t.Errorf("start after the close: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		name string
		c    Command
		want string
	}{
		{"not there", Command{Args: []string{"/no/such/program"}}, "start /no/such/program"},
		{"log", Command{Args: []string{"true"}, Output: "/no/such/folder/log"}, "/no/such/folder/log"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := n.Start(tt.c); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
		})
	}
}

func TestHooks(t *testing.T) {
	n := newNode(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/ok" {
			http.Error(w, "no", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	exec := func(script string) Hook {
		return Exec{n, Command{Args: []string{"/bin/sh", "-c", script}}}
	}
	for _, tt := range []struct {
		name string
		hook Hook
		want string // in the error; empty: none
	}{
		{"exec", exec("exit 0"), ""},
		{"exec that fails", exec("exit 4"), "exit 4"},
		{"httpGet", HTTPGet(server.URL + "/ok"), ""},
		{"httpGet that fails", HTTPGet(server.URL + "/no"), "status 500"},
		{"sleep", Sleep(time.Millisecond), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.hook.Run(t.Context())
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	t.Run("an exec dies with its container", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errContainerGone)
		if err := exec("sleep 60").Run(ctx); err == nil || !strings.Contains(err.Error(), "SIGKILL") {
			t.Errorf("got %v", err)
		}
	})
}

// A container's listening sockets are those that its processes hold, and no
// others of the machine.
func TestListening(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer func() { _ = ln.Close() }()
	n := newNode(t)
	file, err := ln.(*net.TCPListener).File()
	must.Do(t, err)
	defer func() { _ = file.Close() }()
	setFlags := func(flags int) {
		if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFD, flags); err != nil {
			t.Fatal(err)
		}
	}
	setFlags(0) // inherited
	holder, err := n.Start(Command{Args: []string{"sleep", "60"}})
	must.Do(t, err)
	setFlags(unix.FD_CLOEXEC)
	other, err := n.Start(Command{Args: []string{"sleep", "60"}})
	must.Do(t, err)
	for _, tt := range []struct {
		name string
		p    *Process
		want int
	}{{"holder", holder, 1}, {"other", other, 0}} {
		if got, err := tt.p.Listening(); err != nil || got != tt.want {
			t.Errorf("%s has %d listening sockets (%v), want %d", tt.name, got, err, tt.want)
		}
	}
}

func TestEstablished(t *testing.T) {
	ln := nettest.Listen(t, "127.0.0.1:0")
	defer func() { _ = ln.Close() }()
	port := ln.Addr().(*net.TCPAddr).Port
	before, err := Established()
	must.Do(t, err)
	c, err := net.Dial("tcp", ln.Addr().String())
	must.Do(t, err)
	defer func() { _ = c.Close() }()
	after, err := Established()
	if err != nil || before[port] != 0 || after[port] != 1 {
		t.Errorf("got %d, then %d (%v)", before[port], after[port], err)
	}
}

// Two nodes, as of two rehearsals, never return the same port, although no server listens yet.
func TestNextPort(t *testing.T) {
	nodes := [2]*Node{newNode(t), newNode(t)}
	seen := make(map[int]bool)
	for i := range 600 {
		port, err := nodes[i%2].NextPort()
		must.Do(t, err)
		if seen[port] {
			t.Errorf("port %d twice", port)
		}
		seen[port] = true
	}
}

// A process that has left its group is killed by the path that it was started by, and no other.
func TestKillNamed(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	var all []*Process
	for _, name := range []string{"hook", "hook-2"} {
		path := filepath.Join(dir, name)
		must.Do(t, os.Symlink("/bin/sh", path))
		p, _ := shell(t, n, "exec "+path+" -c 'echo ready; while :; do sleep 0.1; done'")
		all = append(all, p)
	}
	KillNamed(filepath.Join(dir, "hook"))
	if got := all[0].Ending(); got != "SIGKILL" {
		t.Errorf("the process ended by %s", got)
	}
	select {
	case <-all[1].Done():
		t.Error("a process with a longer path has ended")
	default:
	}
}
