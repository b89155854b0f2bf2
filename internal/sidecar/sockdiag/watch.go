package sockdiag

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Groups of linux/sock_diag.h that report destroyed TCP sockets.
const (
	groupTCPDestroy  = 1
	groupTCP6Destroy = 3
)

// endedMost bounds the destroyed sockets that are kept for Ended.
const endedMost = 4096

// allMost is endedMost for WatchAll, and allBuffer the kernel's buffer for its reports, bytes: a server that ends with
// 10,000 connections causes as many reports at once.
const (
	allMost   = 1 << 14
	allBuffer = 16 << 20
)

// Watch reports destroyed sockets.
type Watch struct {
	nl         *netlink.Conn
	gone, bare chan struct{}
	done       sync.WaitGroup
	most       int // of ended

	mu    sync.Mutex // guards what follows
	ended []Socket
	lost  bool
}

// WatchDestroyed sends on Gone whenever a TCP socket with one of the local ports has been destroyed, which means that
// it has left the states in which data can arrive (TIME_WAIT is a small socket of its own). It needs no privilege, but
// some kernels and sandboxes do not support it; the caller then has to poll the table.
func WatchDestroyed(ports []uint16) (*Watch, error) {
	ports = slices.Sorted(slices.Values(ports))
	w, err := newWatch(endedMost, func(nl *netlink.Conn) error {
		filter, err := destroyedFilter(ports) // otherwise every socket of the namespace that ends would wake this process
		if err != nil {
			return err
		}
		return nl.SetBPF(filter)
	})
	if err != nil {
		return nil, err
	}
	w.done.Go(func() {
		w.run(func(s *Socket) bool {
			_, ours := slices.BinarySearch(ports, s.Local.Port())
			return ours && s.Remote.Port() != 0 // not a listener
		})
	})
	return w, nil
}

// WatchAll reports every TCP socket that is destroyed in the namespace of OpenTable, listeners too. A socket
// that its listener's end or an abort has reset (tcp_disconnect) has a remote port of 0 and no counters. buffer is the
// size of the kernel's buffer for reports in bytes, 0 for one that holds 10,000; without CAP_NET_ADMIN the kernel
// limits it to net.core.rmem_max.
func WatchAll(buffer int) (*Watch, error) {
	w, err := newWatch(allMost, func(nl *netlink.Conn) error { return nl.SetReadBuffer(cmp.Or(buffer, allBuffer)) })
	if err != nil {
		return nil, err
	}
	w.done.Go(func() { w.run(func(*Socket) bool { return true }) })
	return w, nil
}

func newWatch(most int, configure func(*netlink.Conn) error) (*Watch, error) {
	nl, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{Groups: 1<<(groupTCPDestroy-1) | 1<<(groupTCP6Destroy-1)})
	if err == nil {
		if err = configure(nl); err != nil {
			_ = nl.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("watch destroyed sockets (sock_diag): %w", err)
	}
	return &Watch{nl: nl, gone: make(chan struct{}, 1), bare: make(chan struct{}, 1), most: most}, nil
}

// destroyedFilter accepts reports about a local port in the spans of ports.
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

// Gone receives after one or more sockets have been destroyed. It is closed when the kernel no longer reports.
func (w *Watch) Gone() <-chan struct{} { return w.gone }

// BareGone is Gone of sockets without a remote port: listeners, and resets as WatchAll shows them.
func (w *Watch) BareGone() <-chan struct{} { return w.bare }

// Ended returns the sockets that were destroyed since the last call. lost is true when there were more, for which the
// kernel or this process had no room. A socket in the result is in no later result of Table.Sockets.
func (w *Watch) Ended() (sockets []Socket, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sockets, lost = w.ended, w.lost
	w.ended, w.lost = nil, false
	return sockets, lost
}

// Close ends it.
func (w *Watch) Close() error {
	_ = w.nl.SetReadDeadline(time.Unix(1, 0)) // wakes run
	w.done.Wait()
	return w.nl.Close()
}

// buffers hold a report: 400 bytes in 6.18.
var buffers = sync.Pool{New: func() any { return new([2048]byte) }}

// run reads without the client, which asks for the length of each report and copies it.
func (w *Watch) run(concerns func(*Socket) bool) {
	defer close(w.gone)
	socket, err := w.nl.SyscallConn()
	read := func(fd uintptr) bool {
		b := buffers.Get().(*[2048]byte)
		defer buffers.Put(b)
		n, failed := unix.Read(int(fd), b[:])
		switch failed {
		case nil:
			if s, ok := parse(b[min(n, unix.NLMSG_HDRLEN):n]); ok && concerns(&s) {
				s.Ended = time.Now()
				w.add(&s)
			}
		case unix.ENOBUFS: // the kernel has dropped some
			w.add(nil)
		case unix.EAGAIN, unix.EINTR:
		default: // the kernel no longer reports
			err = failed
		}
		return failed != unix.EAGAIN
	}
	for err == nil && socket.Read(read) == nil { // until Close
	}
}

// add keeps a destroyed socket; nil is one that was lost.
func (w *Watch) add(s *Socket) {
	w.mu.Lock()
	if s != nil && len(w.ended) < w.most {
		w.ended = append(w.ended, *s)
	} else {
		w.lost = true
	}
	w.mu.Unlock()
	notify(w.gone)
	if s != nil && s.Remote.Port() == 0 {
		notify(w.bare)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
