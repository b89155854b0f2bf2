package sockdiag

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Groups of linux/sock_diag.h that tell of destroyed TCP sockets.
const (
	groupTCPDestroy  = 1
	groupTCP6Destroy = 3
)

// Watch tells of destroyed sockets.
type Watch struct {
	nl   *netlink.Conn
	gone chan struct{}
	done sync.WaitGroup
}

// WatchDestroyed sends on Gone whenever a TCP socket with one of the local ports
// has been destroyed: when it has left the states in which data can come, its
// time-wait apart. It needs no right, but not every kernel or sandbox can; looking
// again and again is what remains then.
func WatchDestroyed(ports []uint16) (*Watch, error) {
	nl, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{Groups: 1<<(groupTCPDestroy-1) | 1<<(groupTCP6Destroy-1)})
	if err != nil {
		return nil, fmt.Errorf("be told of destroyed sockets (sock_diag): %w", err)
	}
	w := &Watch{nl: nl, gone: make(chan struct{}, 1)}
	ports = slices.Sorted(slices.Values(ports))
	// Every socket of the namespace that ends would wake us.
	filter, err := destroyedFilter(ports)
	if err == nil {
		err = nl.SetBPF(filter)
	}
	if err != nil {
		_ = nl.Close()
		return nil, fmt.Errorf("be told of destroyed sockets (sock_diag): filter them: %w", err)
	}
	w.done.Go(func() { w.run(ports) })
	return w, nil
}

// destroyedFilter lets through what tells of a local port in the spans of ports.
func destroyedFilter(ports []uint16) ([]bpf.RawInstruction, error) {
	const sourcePort = unix.NLMSG_HDRLEN + 4 // of struct inet_diag_msg, in network order
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: sourcePort, Size: 2}}
	for _, s := range spansOf(ports, maxSpans) {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(s.first), SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(s.last), SkipFalse: 1},
			bpf.RetConstant{Val: math.MaxUint32})
	}
	return bpf.Assemble(append(program, bpf.RetConstant{}))
}

// Gone carries a signal after one or more sockets have gone. It is closed when
// the kernel tells no more.
func (w *Watch) Gone() <-chan struct{} { return w.gone }

// Close ends it.
func (w *Watch) Close() error {
	_ = w.nl.SetReadDeadline(time.Unix(1, 0)) // wakes run
	w.done.Wait()
	return w.nl.Close()
}

func (w *Watch) run(ports []uint16) {
	defer close(w.gone)
	for {
		messages, err := w.nl.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS): // told too much at once: something has gone
			w.tell()
			continue
		case err != nil: // Close, or a kernel that has enough
			return
		}
		for _, m := range messages {
			if s, ok := parse(m.Data); ok {
				if _, ours := slices.BinarySearch(ports, s.Local.Port()); ours {
					w.tell()
				}
			}
		}
	}
}

func (w *Watch) tell() {
	select {
	case w.gone <- struct{}{}:
	default:
	}
}
