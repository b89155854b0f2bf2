package hotrestart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/cloudflare/tableflip"

	"github.com/lastcall-dev/lastcall/internal/listen"
)

// DefaultTimeout is how long a successor may wait for what it needs to be ready.
const DefaultTimeout = time.Minute

// overtime is how much longer it lives: who has waited in vain says for what, who
// hangs is killed.
const overtime = 5 * time.Second

// Options of a handover.
type Options struct {
	// PIDFile, if given, holds the number of the process to talk to: the one that
	// serves, or its predecessor as long as that drains.
	PIDFile string

	// Timeout is how long a successor may wait for what it needs to be ready; it
	// is killed 5 s later. Zero is DefaultTimeout.
	Timeout time.Duration
}

// Handover is a process's link to the one before it and the one after it.
type Handover struct {
	upgrader  *tableflip.Upgrader
	timeout   time.Duration
	pidFile   string
	control   net.Listener // nil without a pid file
	fromAbove *word        // what we tell the predecessor; nil without one
	toBelow   *word        // what the successor tells us

	mu       sync.Mutex // guards what follows
	reserved map[string]net.Listener
	stopped  bool
}

// begun is the process's one handover; tableflip admits no second.
var begun struct {
	sync.Mutex
	*Handover
}

// Begin takes over what the predecessor has left, if there is one. It works once
// in a process.
func Begin(o Options) (*Handover, error) {
	begun.Lock()
	defer begun.Unlock()
	if begun.Handover != nil {
		return nil, errors.New("a process takes over only once")
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
		return nil, fmt.Errorf("take over from the process before: %w", err)
	}
	h := &Handover{upgrader: upgrader, timeout: o.Timeout, pidFile: o.PIDFile, reserved: make(map[string]net.Listener)}
	if succeeds {
		file, err := upgrader.File(wordName)
		if err != nil {
			return nil, fmt.Errorf("take over from the process before: %w", err)
		}
		if file != nil {
			h.fromAbove = &word{file}
		}
	}
	if h.toBelow, err = newWord(); err != nil {
		return nil, err
	}
	if err := upgrader.AddFile(wordName, h.toBelow.file); err != nil {
		return nil, fmt.Errorf("prepare for a successor: %w", err)
	}
	if o.PIDFile != "" {
		if h.control, err = listenControl(o.PIDFile); err != nil {
			return nil, err
		}
	}
	begun.Handover = h
	return h, nil
}

// Explain tells the predecessor, if there is one, why this process will not
// become ready. It may be called before Begin.
func Explain(why error) {
	if isSuccessor() {
		_, _ = Begin(Options{})
	}
	begun.Lock()
	h := begun.Handover
	begun.Unlock()
	if h != nil {
		h.fromAbove.say(why.Error())
	}
}

// Succeeds says whether a predecessor serves, or did, when this process began.
func (h *Handover) Succeeds() bool { return h.upgrader.HasParent() }

// Patience is how long to wait for what must be there before Ready.
func (h *Handover) Patience() time.Duration { return h.timeout }

// Reserve opens or inherits a listener that Listen will give. So it is known that
// all addresses can be had before a connection is accepted on the first.
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

// Listen gives the predecessor's listener of this very address, or a new one.
func (h *Handover) Listen(network, address string) (net.Listener, error) {
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

// Ready tells the predecessor that this process serves, so that it drains. The
// first process has to call it too: there is no Restart before.
func (h *Handover) Ready() error {
	if !h.Succeeds() {
		if err := h.writePID(os.Getpid()); err != nil {
			return err
		}
	}
	h.fromAbove.say(readyWord(os.Getpid()))
	if err := h.upgrader.Ready(); err != nil {
		return fmt.Errorf("be ready to serve: %w", err)
	}
	return nil
}

// Restart starts a successor and returns its process number when it serves: the
// sockets are the successor's then, and this process has to drain and exit. It
// waits before, as long as ctx lasts, for the predecessor to have exited. After an
// error this process serves on as if nothing had been.
func (h *Handover) Restart(ctx context.Context) (pid int, err error) {
	if err := h.AwaitPredecessor(ctx); err != nil {
		return 0, fmt.Errorf("wait for the process before this one, which still drains: %w", err)
	}
	if err := h.toBelow.clear(); err != nil {
		return 0, err
	}
	err = h.upgrade(ctx)
	said := h.toBelow.read()
	if err != nil {
		if said = strings.TrimSpace(said); said != "" {
			return 0, fmt.Errorf("%w, and said: %s", err, said)
		}
		return 0, err
	}
	<-h.upgrader.Exit() // our copies of the sockets are closed
	return readyPid(said), nil
}

// upgrade is tableflip's. That sees its parent's end a moment after we do, and has
// no other name for it than this text.
func (h *Handover) upgrade(ctx context.Context) error {
	for {
		err := h.upgrader.Upgrade()
		if err == nil || !h.Succeeds() || err.Error() != "parent hasn't exited" || ctx.Err() != nil {
			return err
		}
		runtime.Gosched()
	}
}

// Stop ends all handing over, a Restart under way too: from now on a listener that
// is closed refuses. It does nothing after a Restart.
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

// AwaitPredecessor waits until the process before this one has exited.
func (h *Handover) AwaitPredecessor(ctx context.Context) error {
	_ = h.upgrader.WaitForParent(ctx) // how it has ended is not our matter
	return ctx.Err()
}
