package sockdiag

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Groups of linux/sock_diag.h that report destroyed TCP sockets.
const (
	groupTCPDestroy  = 1
	groupTCP6Destroy = 3
)

// maxEnded bounds the destroyed sockets that are kept for Ended.
const maxEnded = 4096

// maxAll is maxEnded for WatchAll, and allBuffer the kernel's buffer for its reports, bytes: a server that ends with
// 10,000 connections causes as many reports at once.
const (
	maxAll    = 1 << 14
	allBuffer = 16 << 20
)

// Watch reports destroyed sockets.
type Watch struct {
	gone  chan struct{}
	done  sync.WaitGroup
	most  int        // of ended
	fd    int        // that has the reports of WatchAll
	files []*os.File // whose reports wake this process

	mu    sync.Mutex // guards the fields below
	ended []Socket
	lost  bool
}

// WatchDestroyed sends on Gone whenever a TCP socket with one of the local ports has been destroyed, which means that
// it has left the states in which data can arrive (TIME_WAIT is a small socket of its own). It needs no privilege, but
// some kernels and sandboxes do not support it; the caller then has to poll the table.
func WatchDestroyed(ports []uint16) (*Watch, error) {
	ports = slices.Sorted(slices.Values(ports))
	w := &Watch{gone: make(chan struct{}, 1), most: maxEnded}
	var err error
	// Without a filter, each socket of the namespace that ends would wake this process.
	if w.fd, err = receiver(destroyedFilter(ports), 0); err != nil {
		return nil, err
	}
	w.run(w.fd, func(s *Socket) {
		if s == nil || slices.Contains(ports, s.Local.Port()) && s.Remote.Port() != 0 { // not a listener
			w.add(s)
		}
	}, func() { close(w.gone) })
	w.fd = -1
	return w, nil
}

// WatchAll collects every TCP socket that is destroyed in the namespace of OpenTable, listeners too. A socket that its
// listener's end or an abort has reset (tcp_disconnect) has a remote port of 0 and no counters.
//
// The reports wait for Receive and wake no process. wake is called after those without a remote port, and
// after a few others. buffer is the size of the kernel's buffer for reports in bytes, 0 for one that holds 10,000;
// without CAP_NET_ADMIN the kernel limits it to net.core.rmem_max.
func WatchAll(buffer int, wake func()) (*Watch, error) {
	waker, err := receiver(wakeFilter, 0)
	if err != nil {
		return nil, err
	}
	w := &Watch{gone: make(chan struct{}, 1), most: maxAll}
	// The later socket gets each report first: it is there when wake is called.
	if w.fd, err = receiver(nil, cmp.Or(buffer, allBuffer)); err != nil {
		_ = unix.Close(waker)
		return nil, err
	}
	w.run(waker, func(*Socket) { wake() }, func() {})
	return w, nil
}

// Receive takes the reports of WatchAll that wait in the kernel for Ended.
func (w *Watch) Receive() {
	for receive(w.fd, w.add) == nil {
	}
}

// receiver opens a socket to which the kernel sends reports.
func receiver(filter []bpf.Instruction, buffer int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err == nil {
		if err = configure(fd, filter, buffer); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		return -1, fmt.Errorf("watch destroyed sockets (sock_diag): %w", err)
	}
	return fd, nil
}

func configure(fd int, filter []bpf.Instruction, buffer int) error {
	if buffer > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, buffer); err != nil {
			return err
		}
	}
	if filter != nil {
		raw, err := bpf.Assemble(filter)
		if err != nil {
			return err
		}
		code := make([]unix.SockFilter, len(raw))
		for i, r := range raw {
			code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
		}
		program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
		if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
			return err
		}
	}
	groups := uint32(1<<(groupTCPDestroy-1) | 1<<(groupTCP6Destroy-1))
	return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
}

// The ports of struct inet_diag_msg, in network order.
const sourcePort, destinationPort = unix.NLMSG_HDRLEN + 4, unix.NLMSG_HDRLEN + 6

// destroyedFilter accepts reports about a local port in the spans of ports.
func destroyedFilter(ports []uint16) []bpf.Instruction {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: sourcePort, Size: 2}}
	for _, s := range spansOf(ports, maxSpans) {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: uint32(s.first), SkipFalse: 2},
			bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(s.last), SkipFalse: 1},
			bpf.RetConstant{Val: math.MaxUint32})
	}
	return append(program, bpf.RetConstant{})
}

// wakeFilter accepts reports about sockets without a remote port, and at random one of 64 others: the more there are,
// the sooner is one of them. A kernel's buffer of 212,992 bytes, the default of net.core.rmem_max, holds 332.
var wakeFilter = []bpf.Instruction{
	bpf.LoadAbsolute{Off: destinationPort, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpEqual, SkipTrue: 3},
	bpf.LoadExtension{Num: bpf.ExtRand},
	bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 63},
	bpf.JumpIf{Cond: bpf.JumpEqual, SkipFalse: 1},
	bpf.RetConstant{Val: math.MaxUint32},
	bpf.RetConstant{},
}

// Gone receives after one or more sockets have been destroyed. It is closed when the kernel no longer reports.
func (w *Watch) Gone() <-chan struct{} { return w.gone }

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
func (w *Watch) Close() (err error) {
	for _, file := range w.files {
		_ = file.SetReadDeadline(time.Unix(1, 0)) // wakes run
	}
	w.done.Wait()
	for _, file := range w.files {
		err = errors.Join(err, file.Close())
	}
	if w.fd >= 0 {
		err = errors.Join(err, unix.Close(w.fd))
	}
	return err
}

// run calls on for each report, until Close or, with end, the kernel no longer reports.
func (w *Watch) run(fd int, on func(*Socket), end func()) {
	file := os.NewFile(uintptr(fd), "sock_diag")
	w.files = append(w.files, file)
	socket, err := file.SyscallConn()
	read := func(fd uintptr) bool {
		failed := receive(int(fd), on)
		if errors.Is(failed, unix.EAGAIN) {
			return false
		}
		err = failed
		return true
	}
	w.done.Go(func() {
		defer end()
		for err == nil && socket.Read(read) == nil {
		}
	})
}

// buffers hold a report: 400 bytes in 6.18.
var buffers = sync.Pool{New: func() any { return new([2048]byte) }}

// receive takes a report, nil for those that the kernel has dropped.
func receive(fd int, on func(*Socket)) error {
	b := buffers.Get().(*[2048]byte)
	defer buffers.Put(b)
	n, err := unix.Read(fd, b[:])
	switch err {
	case nil:
		if s, ok := parse(b[min(n, unix.NLMSG_HDRLEN):n]); ok {
			s.Ended = time.Now()
			on(&s)
		}
	case unix.ENOBUFS:
		on(nil)
	case unix.EINTR:
	default:
		return err
	}
	return nil
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
	Notify(w.gone)
}

// Notify sends without blocking: one unread notification is enough.
func Notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
