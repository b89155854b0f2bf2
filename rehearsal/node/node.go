// Package node makes this machine a Kubernetes node, for rehearsals: pods are real processes on loopback, and a kubelet
// terminates them by Kubernetes' rules.
//
// Promises:
//
//   - When Close returns, all processes of Start have ended, with the processes in their groups, whatever they do with
//     signals.
//   - If this process is killed, its children are killed (PR_SET_PDEATHSIG).
//   - No other process gets a signal: a process is signalled only between its start and its wait4.
//
// The parts of a node:
//
//	container        a process in a process group of its own
//	its PID 1        the process; when it ends, the rest of its group is killed,
//	                 as the kernel does with a PID namespace
//	pod's network    ports of loopback that belong to this pod alone
//	kubelet          Terminate
package node

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/freeport"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// Command is a program to start.
type Command struct {
	Args []string // Args[0] is the program, found by PATH if it holds no slash
	Env  []string // the whole environment; nil means this process's
	Dir  string   // working folder; empty means this process's

	// Output is the file for standard output and error; empty: discarded.
	Output string

	// Init makes it a container's PID 1: see Init.
	Init bool

	imitate bool // with Init: as on a machine that permits no namespaces

	// StopSignal is the signal of Terminate, as a container's stopSignal or its image's STOPSIGNAL; zero: SIGTERM.
	StopSignal syscall.Signal
}

// Node starts processes and ends them.
type Node struct {
	starts  chan start
	stopped chan struct{} // closed when the node no longer starts processes

	mu        sync.Mutex // guards the fields below
	closed    bool
	processes map[*Process]struct{}
	ports     []func() // release the ports of NextPort
}

type start struct {
	cmd *exec.Cmd
	err chan<- error
}

// New returns a node without processes. The caller closes it.
func New() *Node {
	n := &Node{
		starts:    make(chan start),
		stopped:   make(chan struct{}),
		processes: make(map[*Process]struct{}),
	}
	go n.startAll()
	return n
}

// startAll starts every process from one thread that lives as long as the node: the kernel sends the parent-death
// signal when the thread that forked ends, not when its process does.
func (n *Node) startAll() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case s := <-n.starts:
			s.err <- s.cmd.Start()
		case <-n.stopped:
			return
		}
	}
}

var errClosed = errors.New("the node is closed")

// Start starts c. The error names the program.
func (n *Node) Start(c Command) (p *Process, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start %s: %w", c.Args[0], err)
		}
	}()
	var out *os.File
	if c.Output != "" {
		if out, err = os.OpenFile(c.Output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return nil, err
		}
		defer func() { _ = out.Close() }() // the process has a copy
	}
	// Held during the start, so that Close misses no process.
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, errClosed
	}
	if p, err = n.launch(c, out); err != nil {
		return nil, err
	}
	n.processes[p] = struct{}{}
	go func() {
		p.wait()
		n.mu.Lock()
		delete(n.processes, p)
		n.mu.Unlock()
		close(p.done)
	}()
	return p, nil
}

// launch starts c in the first kind of namespaces that this machine permits.
func (n *Node) launch(c Command, out *os.File) (p *Process, err error) {
	for _, w := range c.ways() {
		cmd := exec.Command(c.Args[0], c.Args[1:]...) //nolint:gosec // starting what the caller names is the purpose
		if err = cmd.Err; err != nil {
			return nil, err
		}
		cmd.Dir, cmd.Env, cmd.SysProcAttr = c.Dir, c.Env, w.attributes
		if out != nil {
			cmd.Stdout, cmd.Stderr = out, out
		}
		if w.init == Namespace {
			cmd.Args = append([]string{initName, cmd.Path}, cmd.Args...) // see become
			cmd.Path = "/proc/self/exe"
		}
		started := make(chan error, 1)
		n.starts <- start{cmd, started}
		if err = <-started; err == nil {
			stop := cmp.Or(c.StopSignal, syscall.SIGTERM)
			return &Process{cmd: cmd, stop: stop, init: w.init, done: make(chan struct{})}, nil
		}
	}
	return nil, err
}

// Close kills the remaining processes with their groups, and waits until all are reaped.
func (n *Node) Close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	left := slices.Collect(maps.Keys(n.processes))
	n.mu.Unlock()
	for _, p := range left {
		_ = p.Kill()
	}
	for _, p := range left {
		<-p.Done()
	}
	for _, release := range n.ports {
		release()
	}
	close(n.stopped)
}

// Init is how a process is PID 1 of a container. The kernel drops a signal for PID 1 of a PID namespace that has no
// handler for it, except SIGKILL: such a program runs until the end of the grace period. Terminate
// follows this rule for one that is imitated.
type Init string

// The kinds.
const (
	NoInit    Init = ""          // a tool, or the built-in app
	Namespace Init = "namespace" // PID 1 of a PID namespace of its own, with a /proc of its own where that is permitted
	Imitated  Init = "imitated"  // no PID 1: this machine permits no PID namespaces
)

// way is one kind of start.
type way struct {
	attributes *syscall.SysProcAttr
	init       Init
}

// ways are the kinds of namespaces to try, the best first.
func (c *Command) ways() []way {
	plain := syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !c.Init {
		return []way{{&plain, NoInit}}
	}
	if c.imitate {
		return []way{{&plain, Imitated}}
	}
	asRoot, asUser := plain, plain
	asRoot.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC
	asUser.Cloneflags = asRoot.Cloneflags | syscall.CLONE_NEWUSER
	asUser.UidMappings, asUser.GidMappings = same(os.Geteuid(), "uid_map"), same(os.Getegid(), "gid_map")
	asUser.GidMappingsEnableSetgroups = os.Geteuid() == 0
	asUser.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN} // to mount /proc; become gives it up
	return []way{{&asRoot, Namespace}, {&asUser, Namespace}, {&plain, Imitated}}
}

// same maps the users or groups that this process may use to themselves: all of root's, so that a server may change its
// user, and otherwise the one.
func same(own int, file string) (all []syscall.SysProcIDMap) {
	text, err := os.ReadFile("/proc/self/" + file)
	if own != 0 || err != nil {
		return []syscall.SysProcIDMap{{ContainerID: own, HostID: own, Size: 1}}
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, size int
		if _, err := fmt.Sscan(line, &first, &outside, &size); err == nil {
			all = append(all, syscall.SysProcIDMap{ContainerID: first, HostID: first, Size: size})
		}
	}
	return all
}

// initName is this program's name when it is to become a container's PID 1.
const initName = "lastcall-rehearsal-init"

// A program cannot run code between the kernel's clone and the new program's start. So it starts itself, and this
// function comes before its main.
func init() {
	if len(os.Args) > 2 && os.Args[0] == initName {
		err := become(os.Args[1], os.Args[2:])
		fmt.Fprintf(os.Stderr, "start %s: %v\n", os.Args[1], err)
		os.Exit(127)
	}
}

// become gives this process, PID 1 of a new PID namespace, the /proc of it, and becomes the program. It returns an
// error, or not at all.
func become(program string, args []string) error {
	runtime.LockOSThread() // capabilities and the parent-death signal are one thread's
	// Where an engine hides parts of /proc the kernel refuses a new one. In the old one /proc/self is right, too.
	if unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") == nil {
		_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set the parent-death signal: %w", err)
	}
	return syscall.Exec(program, args, os.Environ())
}

// NextPort returns a free TCP port. It is reserved until the node is closed: seconds pass before the port's server
// listens.
func (n *Node) NextPort() (int, error) {
	port, release, err := freeport.Reserve("127.0.0.1")
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports = append(n.ports, release)
	return port, nil
}

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Established counts the connections of each local TCP port: for a server's port, its clients.
func Established() (map[int]int, error) {
	all, err := sockets.All(sockdiag.Of(sockdiag.Established))
	if err != nil {
		return nil, err
	}
	out := make(map[int]int)
	for _, s := range all {
		out[int(s.Local.Port())]++
	}
	return out, nil
}
