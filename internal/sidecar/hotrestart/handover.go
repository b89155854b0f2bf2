package hotrestart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cloudflare/tableflip"
	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/listen"
)

// DefaultTimeout is how long a successor may take to become ready.
const DefaultTimeout = time.Minute

// overtime is how much later a successor is killed: until then it can report what it waited for.
const overtime = 5 * time.Second

// Options of a handover.
type Options struct {
	PIDFile string        // names the process that serves, or its predecessor while that drains; empty: none
	Timeout time.Duration // for a successor to become ready; it is killed 5 s later. Zero is DefaultTimeout
}

// Handover is a process's link to its predecessor and its successor. A nil one has neither.
type Handover struct {
	upgrader      *tableflip.Upgrader
	timeout       time.Duration
	pidFile       string
	toPredecessor *message // nil without a predecessor
	fromSuccessor *message

	mu       sync.Mutex // guards the fields below
	reserved map[string]net.Listener
	stopped  bool
}

// begun is the process's only handover; tableflip allows no second.
var begun struct {
	sync.Mutex
	*Handover
}

// Begin takes over the predecessor's listeners, if there is one. It works once in a process.
func Begin(o Options) (*Handover, error) {
	begun.Lock()
	defer begun.Unlock()
	if begun.Handover != nil {
		return nil, errors.New("handover has already begun in this process")
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	succeeds := isSuccessor()
	if succeeds {
		keepFromChildren()
	}
	upgrader, err := tableflip.New(tableflip.Options{UpgradeTimeout: o.Timeout + overtime})
	forgetPredecessor()
	if err != nil {
		return nil, fmt.Errorf("take over from the predecessor: %w", err)
	}
	h := &Handover{upgrader: upgrader, timeout: o.Timeout, pidFile: o.PIDFile, reserved: make(map[string]net.Listener)}
	if succeeds {
		file, err := upgrader.File(messageName)
		if err != nil {
			return nil, fmt.Errorf("take over from the predecessor: %w", err)
		}
		if file != nil {
			h.toPredecessor = &message{file}
		}
	}
	if h.fromSuccessor, err = newMessage(); err != nil {
		return nil, err
	}
	if err := upgrader.AddFile(messageName, h.fromSuccessor.file); err != nil {
		return nil, fmt.Errorf("prepare for a successor: %w", err)
	}
	begun.Handover = h
	return h, nil
}

// Explain sends the predecessor, if there is one, the reason why this process will not become ready. It may be called
// before Begin.
func Explain(why error) {
	if isSuccessor() {
		_, _ = Begin(Options{})
	}
	begun.Lock()
	h := begun.Handover
	begun.Unlock()
	if h != nil {
		h.toPredecessor.write(why.Error())
	}
}

// Succeeds reports whether this process was started by a predecessor.
func (h *Handover) Succeeds() bool { return h != nil && h.upgrader.HasParent() }

// Reserve opens or inherits a listener that Listen will return. All addresses are then known to be available before the
// first connection is accepted.
func (h *Handover) Reserve(network, address string) error {
	ln, err := h.Listen(network, address)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reserved[network+" "+address] = ln
	return nil
}

// Listen returns the predecessor's listener of this address, or a new one.
func (h *Handover) Listen(network, address string) (net.Listener, error) {
	if h == nil {
		return listen.Open(network, address)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := network + " " + address
	if ln := h.reserved[key]; ln != nil {
		delete(h.reserved, key)
		return ln, nil
	}
	if h.stopped {
		return listen.Open(network, address)
	}
	return h.upgrader.ListenWithCallback(network, address, listen.Open)
}

// Ready makes the predecessor drain: this process serves. The first process has to call it too: no Restart is possible
// before.
func (h *Handover) Ready() error {
	if h == nil {
		return nil
	}
	if !h.Succeeds() {
		if err := h.writePID(os.Getpid()); err != nil {
			return err
		}
	}
	h.toPredecessor.write(readyMessage(os.Getpid()))
	if err := h.upgrader.Ready(); err != nil {
		return fmt.Errorf("notify the predecessor: %w", err)
	}
	return nil
}

// Restart starts a successor and returns its process number when it serves: the sockets are the successor's from then
// on, and this process has to drain and exit. Before, it waits for the exit of this process's own predecessor, until
// ctx ends. After an error this process continues to serve.
func (h *Handover) Restart(ctx context.Context) (pid int, err error) {
	if err := h.AwaitPredecessor(ctx); err != nil {
		return 0, fmt.Errorf("wait for the predecessor, which still drains: %w", err)
	}
	if err := h.fromSuccessor.clear(); err != nil {
		return 0, err
	}
	err = h.upgrade(ctx)
	reason := h.fromSuccessor.read()
	if err != nil {
		if reason = strings.TrimSpace(reason); reason != "" {
			return 0, fmt.Errorf("%w: %s", err, reason)
		}
		return 0, err
	}
	<-h.upgrader.Exit() // our copies of the sockets are closed
	return readyPID(reason), nil
}

// parentAlive is the text of tableflip's error in that moment; TestTableflipNamesALivingParent fails if it changes.
const parentAlive = "parent hasn't exited"

// upgrade starts the successor. tableflip detects its parent's exit a moment after AwaitPredecessor has returned, and
// has no typed error for that moment.
func (h *Handover) upgrade(ctx context.Context) error {
	for {
		err := h.upgrader.Upgrade()
		if err == nil || !h.Succeeds() || err.Error() != parentAlive || ctx.Err() != nil {
			return err
		}
		runtime.Gosched()
	}
}

// Stop rules out a successor, and ends a Restart in progress: from now on a closed listener refuses connections. It
// does nothing after a Restart.
func (h *Handover) Stop() {
	h.upgrader.Stop()
	<-h.upgrader.Exit()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	for key, ln := range h.reserved {
		_ = ln.Close()
		delete(h.reserved, key)
	}
}

// AwaitPredecessor waits until the predecessor has exited.
func (h *Handover) AwaitPredecessor(ctx context.Context) error {
	_ = h.upgrader.WaitForParent(ctx) // an error is about how it ended
	return ctx.Err()
}

// sentinel begins the name of the variable by which tableflip marks a successor.
const sentinel = "TABLEFLIP_HAS_PARENT_"

func isSuccessor() bool {
	return slices.ContainsFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, sentinel) })
}

// forgetPredecessor keeps the variable from our children: an app that uses tableflip itself would look for our
// descriptors among its own.
func forgetPredecessor() {
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, sentinel) {
			_ = os.Unsetenv(name)
		}
	}
}

// keepFromChildren marks the two pipes between successor and predecessor close-on-exec, which tableflip does not.
func keepFromChildren() {
	syscall.CloseOnExec(3)
	syscall.CloseOnExec(4)
}

// message is the report of a successor to its predecessor in addition to tableflip's one byte: its process number when
// it is ready, otherwise the reason why it is not. It is a file in memory that both processes have open. Writing to a
// nil message does nothing.
type message struct{ file *os.File }

const messageName = "message"

// maxMessage bounds what is read, bytes.
const maxMessage = 4096

func newMessage() (*message, error) {
	fd, err := unix.MemfdCreate("lastcall-"+messageName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory for the successor's message: %w", err)
	}
	return &message{os.NewFile(uintptr(fd), messageName)}, nil
}

// clear removes the previous successor's message.
func (m *message) clear() error {
	if err := m.file.Truncate(0); err != nil {
		return fmt.Errorf("clear the successor's message: %w", err)
	}
	return nil
}

func (m *message) write(s string) {
	if m != nil {
		_, _ = m.file.WriteAt([]byte(s), 0) // the log has it too
	}
}

func (m *message) read() string {
	b, _ := io.ReadAll(io.NewSectionReader(m.file, 0, maxMessage))
	return string(b)
}

func readyMessage(pid int) string { return fmt.Sprintf("ready %d", pid) }

// readyPID is 0 when the message is a reason.
func readyPID(s string) (pid int) {
	_, _ = fmt.Sscanf(s, "ready %d", &pid)
	return pid
}
