package observe

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// marks are unused sockets of a network namespace, one for each processor. The kernel queues the report of a destroyed socket
// on the processor that destroyed it (sock_diag_broadcast_destroy): behind the reports of all marks, none is missing.
type marks struct {
	processors []int
	sockets    []int
	cookies    map[uint64]bool // whose reports are missing
}

// processors are those that the machine has online.
var processors = sync.OnceValue(func() int {
	b, _ := os.ReadFile("/proc/stat")
	return bytes.Count(b, []byte("\ncpu"))
})

// newMarks opens marks. There are none where this process may not run on each processor.
func newMarks(namespace *os.File) (m marks, err error) {
	if err = in(namespace, m.open); err != nil {
		for _, fd := range m.sockets {
			_ = unix.Close(fd)
		}
	}
	return m, err
}

func (m *marks) open() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, restore, err := allProcessors()
	if err != nil {
		return fmt.Errorf("find the processors: %w", err)
	}
	restore()
	if all.Count() < processors() {
		return nil
	}
	m.cookies = make(map[uint64]bool)
	for i := 0; len(m.processors) < all.Count(); i++ {
		if !all.IsSet(i) {
			continue
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return fmt.Errorf("open a socket: %w", err)
		}
		m.processors, m.sockets = append(m.processors, i), append(m.sockets, fd)
		cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		if err != nil {
			return fmt.Errorf("read a socket's cookie: %w", err)
		}
		m.cookies[cookie] = true
	}
	return nil
}

// allProcessors lets the calling thread run on each processor, and returns on which it may.
func allProcessors() (all unix.CPUSet, restore func(), err error) {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return all, nil, err
	}
	all.Fill()
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		return all, nil, err
	}
	all.Zero() // the kernel writes as many bits as it has
	err = unix.SchedGetaffinity(0, &all)
	return all, func() { _ = unix.SchedSetaffinity(0, &own) }, err
}

// end closes each mark on its processor.
func (m marks) end() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, restore, err := allProcessors(); err == nil {
		defer restore()
	}
	for i, processor := range m.processors {
		var one unix.CPUSet
		one.Set(processor)
		_ = unix.SchedSetaffinity(0, &one) // one that has gone offline has no reports
		_ = unix.Close(m.sockets[i])
	}
}
