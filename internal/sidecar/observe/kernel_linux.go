package observe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lastcall-dev/lastcall/internal/sidecar/sockdiag"
	"github.com/lastcall-dev/lastcall/internal/sidecar/sockets"
)

// kernel has the sources of a watch, of one network namespace.
type kernel struct {
	table    *sockdiag.Table
	reports  *sockdiag.Watch
	counters counters
}

// openKernel opens everything in the namespace; nil is the process's own.
func openKernel(namespace *os.File, buffer int) (*kernel, error) {
	k := new(kernel)
	err := in(namespace, func() (err error) {
		if k.counters, err = openCounters(); err != nil {
			return fmt.Errorf("open the network namespace's counters: %w", err)
		}
		if k.table, err = sockdiag.OpenTable(); err != nil {
			return err
		}
		k.reports, err = sockdiag.WatchAll(buffer, func() { sockdiag.Notify(allStandby.now) })
		return err
	})
	if err != nil {
		return nil, errors.Join(err, k.close())
	}
	return k, nil
}

// in runs f in a network namespace; nil is the process's own.
func in(namespace *os.File, f func() error) error {
	if namespace == nil {
		return f()
	}
	return Within(int(namespace.Fd()), f)
}

// Within runs f in another network namespace: of a descriptor of /proc/PID/ns/net, or of a process (pidfd, since Linux
// 5.8). Sockets that f opens stay there; goroutines that it starts are not there.
func Within(namespace int, f func() error) error {
	done := make(chan error)
	go func() { done <- within(namespace, f) }()
	return <-done
}

// within enters the namespace and comes back. A thread that cannot come back stays locked and ends with the goroutine;
// the main thread could not end, and /proc/self would show its namespace.
func within(namespace int, f func() error) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the own network namespace: %w", err)
	}
	defer own.Close()
	if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave the network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

func (k *kernel) close() (err error) {
	k.counters.close()
	if k.reports != nil {
		err = k.reports.Close()
	}
	if k.table != nil {
		err = errors.Join(err, k.table.Close())
	}
	return err
}

// counters are open files of a network namespace, in /proc/net. They stay those of the namespace in which they were
// opened.
type counters struct{ snmp, netstat, tcp, tcp6 *os.File } // tcp6 is nil without IPv6

func openCounters() (c counters, err error) {
	for name, file := range map[string]**os.File{"snmp": &c.snmp, "netstat": &c.netstat, "tcp": &c.tcp, "tcp6": &c.tcp6} {
		if *file, err = os.Open("/proc/thread-self/net/" + name); err != nil && name != "tcp6" {
			c.close()
			return c, err
		}
	}
	return c, nil
}

func (c counters) close() {
	for _, file := range []*os.File{c.snmp, c.netstat, c.tcp, c.tcp6} {
		_ = file.Close() // of nil: an error
	}
}

// maxTable bounds a table of sockets, bytes: 150 for each.
const maxTable = 64 << 20

// acks reads the tables of sockets: see sockets.InStride.
func (c counters) acks(ports []uint16) (answers func(local, remote netip.AddrPort) (answered, exact bool), err error) {
	tables := []io.Reader{io.NewSectionReader(c.tcp, 0, maxTable)}
	if c.tcp6 != nil {
		tables = append(tables, io.NewSectionReader(c.tcp6, 0, maxTable))
	}
	return sockets.InStride(ports, tables...)
}

// segments is the number of TCP segments that the namespace has received and sent, of any kind.
func (c counters) segments() (int, error) { return sum(c.snmp, "Tcp:", "InSegs", "OutSegs") }

// pacer shares processor time among looks: a look walks the socket table of the whole machine, whatever namespace it is
// for, so a part for each would add up. It is safe for concurrent use.
type pacer struct {
	share time.Duration // the reciprocal of the part of a core that all take together

	mu   sync.Mutex
	free time.Time // when everything until now is paid
}

// Those of all watches of the process: looks after Begin, and scans of the listeners on standby.
var (
	looks = pacer{share: 20}
	scans = pacer{share: 1000}
)

// reserve pays for work that ended at now, and returns the earliest time of the next look of the watch that did it.
// Watches that look in turn get equal parts, and what one does not use is the others'.
func (p *pacer) reserve(now time.Time, cost time.Duration) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = later(p.free, now).Add(p.share * cost)
	return p.free
}

// paid is when everything until now is paid.
func (p *pacer) paid() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.free
}

// measure returns the processor time that work takes, in which the wait for a busy machine is not.
func measure(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	from := threadTime()
	work()
	return threadTime() - from
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // it has no error for the own thread
	return time.Duration(t.Nano())
}

// processors are those that the machine has online.
var processors = sync.OnceValue(func() int {
	b, _ := os.ReadFile("/proc/stat")
	return bytes.Count(b, []byte("\ncpu"))
})

// sentinel is an unused socket that is closed on a processor. The kernel queues the report of a destroyed socket on the
// processor that destroyed it (sock_diag_broadcast_destroy): behind the reports of the sentinels of all processors,
// none is missing.
type sentinel struct{ processor, fd int }

// openSentinels opens one for each processor. cookies are theirs. It fails where this process may not run on all.
func openSentinels(namespace *os.File) (sentinels []sentinel, cookies map[uint64]bool, err error) {
	var all, own unix.CPUSet
	cookies = make(map[uint64]bool)
	err = in(namespace, func() error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		all.Fill()
		if err := errors.Join(unix.SchedGetaffinity(0, &own), unix.SchedSetaffinity(0, &all)); err != nil {
			return err
		}
		defer func() { _ = unix.SchedSetaffinity(0, &own) }()
		all.Zero() // the kernel writes as many bits as it has
		if err := unix.SchedGetaffinity(0, &all); err != nil || all.Count() < processors() {
			return errors.Join(err, errors.New("not all processors are usable"))
		}
		for i := 0; len(sentinels) < all.Count(); i++ {
			if !all.IsSet(i) {
				continue
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
			if err != nil {
				return err
			}
			sentinels = append(sentinels, sentinel{i, fd})
			cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
			if err != nil {
				return err
			}
			cookies[cookie] = true
		}
		return nil
	})
	return sentinels, cookies, err
}

// closeSentinels closes each on its processor. The thread ends with the goroutine, because it stays locked to the last
// one.
func closeSentinels(sentinels []sentinel) {
	runtime.LockOSThread()
	for _, m := range sentinels {
		var one unix.CPUSet
		one.Set(m.processor)
		_ = unix.SchedSetaffinity(0, &one) // one that has gone offline has no reports
		_ = unix.Close(m.fd)
	}
}
