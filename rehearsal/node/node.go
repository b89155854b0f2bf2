package node

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"

	"github.com/lastcall-dev/lastcall/internal/sidecar/process"
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
func (n *Node) Start(c Command) (*Process, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("start a process: no program")
	}
	p, err := n.start(c)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	return p, nil
}

func (n *Node) start(c Command) (*Process, error) {
	var out *os.File
	if c.Output != "" {
		var err error
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
	p, err := n.launch(c, out)
	if err != nil {
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
			return &Process{cmd: cmd, stop: cmp.Or(c.StopSignal, syscall.SIGTERM), init: w.init, done: make(chan struct{})}, nil
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
	left := make([]*Process, 0, len(n.processes))
	for p := range n.processes {
		left = append(left, p)
	}
	n.mu.Unlock()
	for _, p := range left {
		_ = p.Kill()
	}
	for _, p := range left {
		<-p.Done()
	}
	close(n.stopped)
}

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

// Listening counts the listening TCP sockets of the processes in p's group, as `netstat -plnt` shows them in a
// container.
func (p *Process) Listening() (int, error) {
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	held, group := make(map[uint32]bool), strconv.Itoa(p.PID())
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if fields := process.Stat(pid); err == nil && len(fields) > 2 && fields[2] == group { // state, parent, group
			_ = sockdiag.AddInodes(held, folder) // it may have ended
		}
	}
	all, err := sockets.All(sockdiag.Of(sockdiag.Listen))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range all {
		if held[s.Inode] {
			n++
		}
	}
	return n, nil
}

// Ports returns TCP ports of loopback, each once. They are below Linux's range for outgoing connections, so that no
// client gets one before its server listens.
type Ports struct {
	mu   sync.Mutex // guards used
	used map[int]bool
}

const (
	firstPort = 10_000
	lastPort  = 32_000
)

// Next returns a port without a listener.
func (p *Ports) Next() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used == nil {
		p.used = make(map[int]bool)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if p.used[port] {
			continue
		}
		p.used[port] = true
		ln, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			continue
		}
		_ = ln.Close()
		return port, nil
	}
	return 0, errors.New("find a free TCP port of 127.0.0.1 from 10000 to 32000: none in 1000 tries")
}

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
