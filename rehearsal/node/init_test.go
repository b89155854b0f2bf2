//go:build linux

package node

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/must"
	"github.com/lastcall-dev/lastcall/internal/poll/polltest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
)

// A container's PID 1 gets the signals that it handles, and no others; what it has started ends with it.
func TestInit(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		name, needs string
		args        []string
		program     string // that ignores SIGTERM; empty: it ends
		ending      string
		raises      bool // its handler restores the default and sends the signal again: Node's own does
	}{
		{"a shell", "", []string{"/bin/sh", "-c", "echo ready; sleep 60; true"}, "sh", "SIGKILL", false},
		{"exec by a shell", "", []string{"/bin/sh", "-c", "echo ready; exec sleep 60"}, "sleep", "SIGKILL", false},
		{"a shell with a handler", "", []string{"/bin/sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"}, "", "exit 3", false},
		{"a handler that resets and raises", "", []string{"/bin/sh", "-c", "trap 'trap - TERM; kill -TERM $$; exit 4' TERM; echo ready; while :; do sleep 0.01; done"}, "", "exit 4", true},
		{"Node", "node", []string{"node", "-e", "require('http').createServer().listen(0, '127.0.0.1', () => console.log('ready'))"}, "node", "SIGKILL", true},
		{"Node with a handler", "node", []string{"node", "-e", "process.on('SIGTERM', () => process.exit(5)); console.log('ready'); setInterval(() => {}, 1000)"}, "", "exit 5", false},
		{"Python", "python3", []string{"python3", "-c", "print('ready', flush=True)\nimport time\ntime.sleep(60)"}, "python3", "SIGKILL", false},
		{"Python with a handler", "python3", []string{"python3", "-c", "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(6))\nprint('ready', flush=True)\ntime.sleep(60)"}, "", "exit 6", false},
		{"Python in sigwait", "python3", []string{"python3", "-c", "import signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\nprint('ready', flush=True)\nsignal.sigwait([signal.SIGTERM])\nsys.exit(7)"}, "", "exit 7", false},
	} {
		for _, kind := range []Init{Namespace, Imitated} {
			t.Run(tt.name+", "+string(kind), func(t *testing.T) {
				if tt.needs != "" {
					if _, err := exec.LookPath(tt.needs); err != nil {
						t.Skip(err)
					}
				}
				p := startInit(t, n, kind, tt.args...)
				polltest.Eventually(t, "exec of "+tt.program, func() bool {
					_, program := handlers(p.PID(), syscall.SIGTERM)
					return tt.program == "" || strings.HasPrefix(program, tt.program)
				})
				must.Do(t, p.Terminate())
				if kind == Imitated && tt.raises { // only a namespace's PID 1 survives its own signal
					if got := p.Ending(); got != "SIGTERM" {
						t.Errorf("it ended by %s", got)
					}
					return
				}
				if tt.program != "" {
					select {
					case <-p.Done():
						t.Fatalf("it ended by %s", p.Ending())
					case <-time.After(200 * time.Millisecond): // for what must not happen
					}
					must.Do(t, p.Kill())
				}
				if got := p.Ending(); got != tt.ending {
					t.Errorf("it ended by %s, want %s", got, tt.ending)
				}
				if got := p.Ignored(); !strings.HasPrefix(got, tt.program) || (got == "") != (tt.program == "") {
					t.Errorf("ignored by %q, want %q", got, tt.program)
				}
			})
		}
	}
}

// startInit starts PID 1 of a container and waits until it has written "ready".
func startInit(t *testing.T, n *Node, kind Init, args ...string) *Process {
	t.Helper()
	p, _ := ready(t, n, Command{Args: args, Init: true, imitate: kind == Imitated})
	if p.Init() != kind {
		t.Skipf("this machine permits no PID namespaces: %s", p.Init())
	}
	return p
}

// In its namespace the process is PID 1, in /proc as well, and has this user's rights; an exec hook runs next to it, and its
// signal for PID 1 is the container's.
func TestInitSeesItself(t *testing.T) {
	n := newNode(t)
	p := startInit(t, n, Namespace, "/bin/sh", "-c", `trap 'exit 7' USR1; setsid sleep 60 & echo ready; while :; do sleep 0.01; done`)
	out := t.TempDir() + "/out"
	hook := Exec{n, p.Within(Command{Args: []string{"/bin/sh", "-c", "cat /proc/1/comm; id -u; pwd; kill -USR1 1; sleep 60"}, Output: out})}
	family := process.Family(p.PID())
	if len(family) < 2 {
		t.Error("no descendants")
	}
	if err := hook.Run(t.Context()); err == nil {
		t.Error("the hook outlived its container")
	}
	if got := p.Ending(); got != "exit 7" {
		t.Errorf("it ended by %s", got)
	}
	for _, one := range family {
		gone(t, one)
	}
	dir, err := os.Getwd()
	must.Do(t, err)
	got, err := os.ReadFile(out)
	if want := "sh\n" + strconv.Itoa(os.Geteuid()) + "\n" + dir + "\n"; err != nil || string(got) != want {
		t.Errorf("in the container: %q, %v; want %q", got, err, want)
	}
}
